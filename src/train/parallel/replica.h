/* The contract of a replica: the ranks that hold one model together, which together work on
 * their share of a batch. A new kind is one file that exports one `const rpi_replica_kind`.
 *
 * Each learn() reports every parameter of this rank as final once, in the order of its arena,
 * when its gradient contains all samples of the share; each evaluate() returns the score of
 * some samples, once a replica. All ranks of a replica make the same calls, and none of them
 * depends on other replicas: the strategy decides what a step is and who exchanges gradients.
 */
#ifndef RPI_TRAIN_REPLICA_H
#define RPI_TRAIN_REPLICA_H

#include "train/data/source.h"
#include "train/mixup.h"
#include "train/parallel/stage_links.h"
#include "train/program_set.h"
#include "train/segment_memory.h"

/* The factors of losses, which make the sum over all replicas a mean. */
typedef struct rpi_loss_scales {
    float label;  /* 1 / labels that count, of all replicas */
    float sample; /* 1 / samples, for tasks with a second loss */
    float mixed;  /* the share of the first loss for mixed-in labels */
} rpi_loss_scales;

/* A replica's samples of a step. */
typedef struct rpi_replica_batch {
    const rpi_source_batch *samples;
    int64_t first_sample; /* its first sample's place in the batch of all replicas */
    /* The number of runs of the model when each of them reports its gradients by itself; all
     * replicas make as many. 0: the gradients of all runs are added up and reported once, and
     * each replica makes as many runs as its share needs. */
    int64_t runs;
    uint64_t seed, step; /* for random draws */
    rpi_loss_scales scales;
    /* Called with the setup's context after each step of a program; NULL: steps are not timed.
     */
    void (*on_step)(void *context, const rpi_step_report *report);
} rpi_replica_batch;

/* A run of the model that has just ended, with all that is needed to repeat it. */
typedef struct rpi_replica_run {
    rpi_instance *instance;
    const rpi_run_options *options;
    double loss;
} rpi_replica_run;

/* Everything is borrowed and must outlive the replica. */
typedef struct rpi_replica_setup {
    const rpi_network *network;
    rpi_weights *weights;
    rpi_program_set *programs;
    const rpi_mixup *mixup;
    rpi_memories *memories; /* of the rows of the share */
    int64_t micro_batch;    /* the most samples in one run of the model */
    /* Of a replica of several stages: this rank's stage, and the links to the others. */
    const rpi_model_stage *stage;
    const rpi_stage_links *links;

    /* Called when the gradients in [first, first + count) of the arena are final for this
     * share. */
    rp_status (*gradient_final)(void *context, int64_t first, int64_t count);
    /* Optional: called when a pass of this program begins, in any run of the model. */
    rp_status (*on_pass)(void *context, const rpi_program *program, rpi_pass pass);
    /* Optional: called when any run of the model needs the index-th parameter of the weights,
     * or is done with it (rpi_run_options). */
    rp_status (*on_parameter)(void *context, int index, rpi_parameter_event event);
    rp_status (*on_run)(void *context, const rpi_replica_run *run); /* optional */
    /* Optional: called when a pass has been computed, from its first kernel to its last, before
     * its results are handed on. */
    void (*passed)(void *context, const rpi_pipeline_pass *pass, int64_t start_ns,
                   int64_t end_ns);
    void *context;
} rpi_replica_setup;

/* The score of some samples; zeros and NULL on ranks of the replica that do not compute it. */
typedef struct rpi_replica_score {
    double loss, correct;               /* sums over labels */
    double sample_loss, sample_correct; /* over samples, of tasks with a second loss */
    /* for tasks that judge them (judges_logits): `each` numbers of every sample */
    const float *logits;
    int64_t each;
} rpi_replica_score;

typedef struct rpi_replica_kind {
    const char *name;
    rp_status (*open)(const rpi_replica_setup *setup, void **out_self);
    void (*close)(void *self);
    /* Compile what a share of so many samples needs to learn or to evaluate. */
    rp_status (*compile)(void *self, bool training, int64_t samples);
    /* A share may be empty: its gradients are zero. *out_loss: the sum over this share, on
     * ranks that compute it. */
    rp_status (*learn)(void *self, const rpi_replica_batch *batch, double *out_loss);
    /* At most as many samples as compile() was called with. `memories`: of the rows that are
     * evaluated; the call updates them. */
    rp_status (*evaluate)(void *self, const rpi_source_batch *samples, rpi_memories *memories,
                          rpi_replica_score *out_score);
    /* Takes part in a run for which this rank has no samples: one that other replicas evaluate
     * or, where each run reports its gradients, learn. It reports the same parameters, and its
     * gradients are zeros. NULL: the kind does not need it. */
    rp_status (*idle)(void *self, bool training);
} rpi_replica_kind;

/* A rank that holds a whole model. */
extern const rpi_replica_kind rpi_replica_alone;
/* A rank that holds one stage of a model and runs it by a schedule. */
extern const rpi_replica_kind rpi_replica_pipeline;

/* ---- for kinds ---- */

/* The inputs of a program in the order of its graph, for samples [first, ...) of a batch, and
 * the scales. */
void rpi_replica_inputs(const rpi_replica_setup *setup, const rpi_source_batch *samples,
                        const rpi_loss_scales *scales, int64_t first,
                        const void *out_inputs[RPI_NETWORK_INPUTS]);
/* Makes all gradients of this rank zero and reports them as final. */
rp_status rpi_replica_learn_nothing(const rpi_replica_setup *setup);
/* Reads the score of an instance that has run the end of a network. */
rp_status rpi_replica_score_of(const rpi_replica_setup *setup, const rpi_instance *instance,
                               int64_t samples, rpi_replica_score *out_score);

#endif
