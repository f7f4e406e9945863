/* The contract of a replica: the ranks that hold one model together, at work on their share of
 * a batch. A new kind is one file that exports one `const rpi_replica_kind`.
 *
 * Each learn() tells every parameter that this rank has final once, in the order of its arena,
 * with what all samples of the share say of it; each evaluate() says what the model makes of
 * samples, once a replica. All ranks of a replica call alike, and nothing that it does depends
 * on other replicas: who exchanges gradients, and what a step is, is the strategy's. */
#ifndef RPI_TRAIN_REPLICA_H
#define RPI_TRAIN_REPLICA_H

#include "train/data/source.h"
#include "train/mixup.h"
#include "train/parallel/stage_links.h"
#include "train/program_set.h"
#include "train/segment_memory.h"

/* What losses are multiplied by, so that the sum over all replicas is a mean. */
typedef struct rpi_loss_scales {
    float label;  /* 1 / labels of all replicas that count, */
    float sample; /* 1 / samples, of tasks with a second loss, */
    float mixed;  /* and the first's share that is of the labels mixed in */
} rpi_loss_scales;

/* A replica's samples of a step. */
typedef struct rpi_replica_batch {
    const rpi_source_batch *samples;
    int64_t first_sample; /* the first one's place in the batch of all replicas */
    /* Each run of the model tells its gradients by itself, and all replicas run it so many
     * times; 0: the gradients of all runs are one, and each runs as often as its share takes.
     */
    int64_t runs;
    uint64_t seed, step; /* of random draws */
    rpi_loss_scales scales;
    /* NULL: nobody hears it, and steps are not timed. With the setup's context. */
    void (*on_step)(void *context, const rpi_step_report *report);
} rpi_replica_batch;

/* One run of the model, just done: what it can be repeated with, for who looks into it. */
typedef struct rpi_replica_run {
    rpi_instance *instance;
    const rpi_run_options *options;
    double loss;
} rpi_replica_run;

/* Everything is borrowed and outlives the replica. */
typedef struct rpi_replica_setup {
    const rpi_network *network;
    const rpi_data_shape *shape; /* of the data */
    rpi_weights *weights;
    rpi_program_set *programs;
    const rpi_mixup *mixup;
    rpi_memories *memories; /* of the rows of the share */
    int64_t micro_batch;    /* samples in one run of the model, at most */
    /* Of a replica of several stages: which this rank's is, and the way to the others. */
    const rpi_model_stage *stage;
    const rpi_stage_links *links;

    /* Gradients in [first, first + count) of the arena are final for this share. */
    rp_status (*gradient_final)(void *context, int64_t first, int64_t count);
    /* Optional: a pass of this program begins, of any run of the model; */
    rp_status (*on_pass)(void *context, const rpi_program *program, rpi_pass pass);
    /* and what runs of the model, of any kind, do with the index-th parameter of the
     * weights (rpi_run_options). */
    rp_status (*on_parameter)(void *context, int index, rpi_parameter_event event);
    rp_status (*on_run)(void *context, const rpi_replica_run *run); /* optional */
    /* Optional: a pass has been computed, from its first kernel to its last, and
     * what it made is handed on next. */
    void (*passed)(void *context, const rpi_pipeline_pass *pass, int64_t start_ns,
                   int64_t end_ns);
    void *context;
} rpi_replica_setup;

/* What the model makes of some samples; zeros and NULL on ranks of the replica that make none
 * of it. */
typedef struct rpi_replica_score {
    double loss, correct;               /* sums over labels */
    double sample_loss, sample_correct; /* over samples, of tasks with a second loss */
    const float *logits; /* of tasks that judge them (judges_logits): `each` of every sample */
    int64_t each;
} rpi_replica_score;

typedef struct rpi_replica_kind {
    const char *name;
    rp_status (*open)(const rpi_replica_setup *setup, void **out_self);
    void (*close)(void *self);
    /* Compile what a share of so many samples needs, of learning or of evaluating. */
    rp_status (*compile)(void *self, bool training, int64_t samples);
    /* A share may be empty: its gradients are zero. *out_loss: the sum over this share, on
     * ranks that make it. */
    rp_status (*learn)(void *self, const rpi_replica_batch *batch, double *out_loss);
    /* At most so many samples as compile() was told. `memories`: of the rows that are
     * evaluated, which go on. */
    rp_status (*evaluate)(void *self, const rpi_source_batch *samples, rpi_memories *memories,
                          rpi_replica_score *out_score);
    /* A run that others make, of evaluating or, where a share has no order of its own, of
     * learning, for which this rank has no samples: what they tell of parameters is told,
     * gradients are zeros. NULL: they have no need. */
    rp_status (*idle)(void *self, bool training);
} rpi_replica_kind;

/* A rank that holds a whole model. */
extern const rpi_replica_kind rpi_replica_alone;
/* A rank that holds a stage of one, in a schedule. */
extern const rpi_replica_kind rpi_replica_pipeline;

/* ---- for kinds ---- */

/* The inputs of a program in the order of its graph: those of samples [first, ...) of a batch,
 * and the scales. */
void rpi_replica_inputs(const rpi_replica_setup *setup, const rpi_source_batch *samples,
                        const rpi_loss_scales *scales, int64_t first,
                        const void *out_inputs[RPI_NETWORK_INPUTS]);
/* All gradients of this rank are zero, and final. */
rp_status rpi_replica_learn_nothing(const rpi_replica_setup *setup);
/* What an instance that has run says, of a network's whole end. */
rp_status rpi_replica_score_of(const rpi_replica_setup *setup, const rpi_instance *instance,
                               int64_t samples, rpi_replica_score *out_score);

#endif
