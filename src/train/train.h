/* Trains a model on data, alone or over the ranks of a communicator. */
#ifndef RPI_TRAIN_TRAIN_H
#define RPI_TRAIN_TRAIN_H

#include "base/option.h"
#include "engine/backend.h"
#include "redpoll/comm.h"
#include "redpoll/store.h"
#include "train/data/picture_options.h"
#include "train/data/scores.h"
#include "train/models/model.h"
#include "train/profile.h"

/* How lost ranks come back (returns.h); the functions are called on the training thread. */
typedef struct rpi_train_returns {
    void *context;
    int generation;   /* how often the launcher has replaced a dead process of this rank */
    int rank, world;  /* as when the run began */
    double timeout_s; /* for an answer of rank 0 */
    /* A store that lives as long as the job, opened when it is first needed. */
    rp_status (*store)(void *context, const rp_store **out_store);
    /* As rp_comm_create() over that store, made in the same way as the run's first
     * communicator, except for the deadline, because all ranks are there. The caller destroys
     * it. */
    rp_status (*connect)(void *context, const char *name, uint32_t epoch, int rank, int world,
                         double connect_timeout_s, rp_comm **out_comm);
} rpi_train_returns;

/* The choices of a user. Texts are borrowed for the run. */
typedef struct rpi_train_options {
    const char *model, *data, *data_dir;
    const char *weights; /* a Hugging Face folder of this model that parameters start from, or
                            NULL: by their rules; without meaning when the run resumes */
    int64_t train_images, test_images; /* of synthetic data; 0: its own choice */
    int64_t seq_length;                /* tokens that a model sees at once; 0: 256 */
    rpi_picture_options pictures;      /* for folders of pictures */
    const char
        *split; /* which rank has which labels (data/label_split.h); NULL: all have all */
    int64_t steps, epochs;     /* steps 0: as many as `epochs` (0: 1) have */
    int64_t global_batch_size; /* 0: batch_size a rank and run; both 0: 64 in all */
    int64_t batch_size;        /* of a rank in one run of the model */
    int64_t accumulate;        /* runs of the model in a step; 0: one */
    int64_t micro_batch_size;  /* samples in one run of the model; 0: by the two before */
    int64_t stages;            /* ranks that hold one model together, by layers; 0: one */
    int64_t tensor_ranks;      /* ranks that share each of its layers; 0: one */
    bool sequence_parallel;    /* such ranks share the tokens between their layers, too */
    int64_t context_ranks;     /* ranks that share each of its sequences; 0: one */
    int64_t replicas;          /* there must be so many; 0: what the ranks make */
    const char *schedule;      /* of their passes: "auto", or of plan/pipelines; NULL: 1f1b */
    const char *stage_cut; /* "counted", "measured" or layers that stages begin with: h.2,h.5;
                              NULL: measured with schedule auto, else counted */
    int64_t seed;

    const char *optimizer;
    double lr, momentum, weight_decay, beta1, beta2, epsilon;
    double label_smoothing; /* in training; 0: none */
    double mixup;           /* pictures are blended: alpha of mixup.h; 0: none */
    double clip;            /* largest norm of all gradients together; 0: any */
    bool nesterov;
    const char *decay; /* "all", or "weights": not vectors */
    const char *lr_schedule;
    double lr_min, lr_gamma;
    int64_t lr_warmup_steps, lr_drop_every, lr_decay_start, lr_decay_steps;

    const char *strategy, *codec, *algorithm; /* algorithm NULL: chosen */
    double bucket_mb;                         /* MiB of gradients in one all-reduce */
    bool error_feedback;
    /* what ranks share: 0: nothing, 1: the optimizer's state, 2: gradients, too, 3: all */
    int64_t zero;
    /* with zero 3: ranks of each host keep a second copy together, from which they gather until
     * the update */
    bool host_shards;
    /* with zero: the codec of parameters that owners send; NULL: exact */
    const char *weights_codec;
    /* of what stages, and ranks that share layers, send each other; NULL: exact */
    const char *activations_codec;
    int64_t warmup_exact; /* first steps with the exact codec */

    const char *backend; /* NULL: the fastest */
    const char *dtype;   /* what products compute in: "fp32" or "bf16"; NULL: fp32 */
    int64_t threads;     /* 0: one a core */
    /* a training that does not fit a host's memory is refused at the start */
    bool memory_check;
    double memory_bytes; /* with it: the memory for this host's ranks; 0: what the host has */
    bool recompute;      /* activations inside blocks are recomputed, not kept */

    const char *out;          /* folder; NULL: nothing is written */
    const char *resume;       /* folder of a checkpoint, or NULL */
    int64_t checkpoint_every; /* steps; 0: by time and at the end */
    double checkpoint_time_s; /* the longest time between two checkpoints; 0: by steps only */
    bool checkpoint;          /* false: none at all */
    int64_t keep;             /* the number of newest checkpoints that are kept; 0: one */
    bool checkpoint_pieces;   /* each rank saves its part of what all have, at the same time */
    bool overwrite;           /* start over in a folder that holds a run */
    int64_t eval_every;       /* steps; 0: at the end only */
    int64_t eval_images;      /* the number of held-out samples, the first ones; 0: all */
    bool eval;                /* false: none at all */
    /* steps between checks; 0: at the start and before checkpoints only */
    int64_t check_replicas;
    int64_t
        /* steps between reports of ranks to each other; 0: about five times a second */
        log_every;
    int64_t sample_every;  /* steps between two sample texts of a language model; 0: none */
    const char *prompt;    /* the beginning of these texts */
    int64_t sample_tokens; /* their new tokens, at most; 0: RPI_SAMPLE_TOKENS */
    bool trace, profile;
    const rpi_train_returns *returns; /* NULL: lost ranks do not come back */

    /* The table of the settings, for the header of metrics.jsonl, and the settings as they were
     * given, before anything was chosen, for settings.json; NULL: not written. Ranks compare
     * the options of the table that are fields of this struct in `target`. */
    const rpi_option *table;
    const void *target, *given;
} rpi_train_options;

/* The ranks on an axis of a replica: one if the option is 0, which means that it was not given.
 */
static inline int64_t rpi_train_axis(int64_t said) {
    return said > 1 ? said : 1;
}

/* Metrics of one step, as rank 0 saw it (docs/json.md). */
typedef struct rpi_step_metrics {
    int64_t step, count; /* steps done; what all ranks learnt from in this step */
    const char *unit;    /* counted in: "images" */
    double loss, lr;
    double gradient_norm;                        /* before clipping; NaN: not measured */
    double outer_gradient_norm, autocorrelation; /* of local-sgd's exchanges; else NaN */
    /* For parameter servers: steps and merges between the parameters of a gradient and its own
     * merge; else NaN. */
    double staleness_mean, staleness_max, missed_updates;
    double step_s, compute_s, comm_s, encode_s, decode_s, exposed_s, skew_s;
    uint64_t wire_bytes;
    uint64_t wire_bytes_received; /* with a staleness only */
} rpi_step_metrics;

typedef struct rpi_evaluation {
    double loss, accuracy; /* NaN where count is 0 */
    double perplexity;     /* NaN: not defined for the task */
    int64_t count;         /* labels of the mean; 0: no token happened to be masked */
    const char *unit;      /* "images" */
    /* For whole samples, if the task has a loss for them, which `loss` then includes. Its name:
     * "nsp"; NULL: there is none. */
    const char *sample_metric;
    double sample_loss, sample_accuracy;
    rpi_scores scores; /* for data that have metrics of their own */
    double
        consensus_distance; /* for ranks with parameters of their own (consensus.h); else NaN */
} rpi_evaluation;

enum { RPI_MEDIAN_STEPS = 1 << 16, RPI_SAMPLE_TOKENS = 40 };

/* Ranks have died and the others go on; ranks by their starting numbers. */
typedef struct rpi_loss {
    int64_t step; /* the step after which all remaining ranks go on */
    const int *ranks;
    int count;
    const char *line; /* "rank 2 is lost after step 57 (...); ranks 0, 1 and 3 go on" */
} rpi_loss;

/* Ranks have come back; by their starting numbers. */
typedef struct rpi_back {
    int64_t step;
    const int *ranks;
    int count;
    const char *line; /* "rank 2 is back behind step 57; ranks 0, 1, 2 and 3 go on" */
} rpi_back;

enum { RPI_LOSSES_TEXT = 256 };

typedef struct rpi_train_result {
    int64_t first_step, steps; /* the steps that this run has made */
    double last_loss, seconds; /* of training, without evaluation and checkpoints */
    /* Medians over at most the latest RPI_MEDIAN_STEPS steps; NaN without steps. */
    double rate_median; /* of `unit` ("images") in a second */
    const char *unit;
    double step_s_median, comm_s_median, exposed_s_median, wire_bytes_median;
    /* Means over the same steps, for strategies that do not exchange in each; NaN without any.
     */
    double exposed_s_mean, wire_bytes_mean;
    bool evaluated;
    rpi_evaluation test;
    int rank, ranks; /* this rank's number at the end, and the number of remaining ranks */
    char lost[RPI_LOSSES_TEXT]; /* "rank 2 after step 57, rank 0 after step 80"; "": none */
    char back[RPI_LOSSES_TEXT]; /* the same for ranks that have come back */
    bool is_late;        /* this rank came back when the run was over, and has done nothing */
    bool stopped;        /* the run ended early, because a rank was asked to stop */
    double memory_bytes; /* the most memory that this process has held; NaN: unknown */
    /* With a lossy codec of activations, its relative error for these, and for their gradients,
     * over all ranks: root of sums of squares; else NaN. */
    double activations_error, activation_gradients_error;
    rpi_profile profile; /* of this rank; without steps: not requested */
} rpi_train_result;

/* Requests to a rank from outside while it trains, one bit each. */
enum { RPI_ASKED_SAVE = 1, RPI_ASKED_STOP = 2 };

/* Called on every rank, on the training thread; any may be NULL. */
typedef struct rpi_train_hooks {
    void *context;
    /* Everything is loaded and checked; the first step follows. */
    void (*started)(void *context, int64_t first_step, int64_t last_step, int64_t parameters);
    /* Steps in their order, when the losses of all ranks are there: several at once. */
    void (*stepped)(void *context, const rpi_step_metrics *metrics);
    void (*evaluated)(void *context, int64_t step, const rpi_evaluation *evaluation);
    /* A sample text of the model after these steps, with the prompt; on rank 0. */
    void (*sampled)(void *context, int64_t step, const char *text);
    void (*saved)(void *context, int64_t step, const char *path);
    void (*note)(void *context, const char *line);
    /* Ranks have died, and the run goes on. first: this rank has become rank 0. */
    void (*lost)(void *context, const rpi_loss *loss, bool first);
    /* The RPI_ASKED_* bits of this rank since the last call; RPI_ASKED_STOP stays set. Called
     * once a step. All ranks do what any of them was asked for, after the same step, at most
     * `log_every` steps later: save a checkpoint; or save one and end. May be given on any
     * rank, also on one without other hooks. */
    int (*asked)(void *context);
} rpi_train_hooks;

/* Checks what can be checked before any rank starts: are names known, do numbers fit together?
 * world 0: not known yet. RP_INVALID: a mistake of usage. */
rp_status rpi_train_check(const rpi_train_options *options, int world);

/* Checks that the files that this run reads exist, and that it may write its own. Quick;
 * creates nothing. RP_INVALID: a mistake of usage. */
rp_status rpi_train_check_files(const rpi_train_options *options);

/* Trains. Collective; blocks. A failure on one rank fails all, with a message that names the
 * rank. comm: NULL on a rank that comes back (options->returns). The same options, seed, ranks,
 * threads and machine give the same bytes. */
rp_status rpi_train(const rpi_train_options *options, rp_comm *comm,
                    const rpi_train_hooks *hooks, rpi_train_result *out_result);

#endif
