/* Training: a model on data, alone or over the ranks of a communicator. */
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

/* How ranks that were lost come back (returns.h); the functions are called on the training
 * thread. */
typedef struct rpi_train_returns {
    void *context;
    int generation; /* this process was started again so often, in the place of one that died */
    int rank, world;  /* when the run began */
    double timeout_s; /* for an answer of rank 0's */
    /* A store that lives as long as the job, opened when it is first asked for. */
    rp_status (*store)(void *context, const rp_store **out_store);
    /* As rp_comm_create() over that store, in the way in which the run's first communicator was
     * made, but for the deadline: all are there. The caller's to destroy. */
    rp_status (*connect)(void *context, const char *name, uint32_t epoch, int rank, int world,
                         double connect_timeout_s, rp_comm **out_comm);
} rpi_train_returns;

/* What a user chooses. Texts are borrowed for the run. */
typedef struct rpi_train_options {
    const char *model, *data, *data_dir;
    const char *weights; /* a Hugging Face folder of this model that parameters start from, or
                            NULL: by their rules; without meaning when the run resumes */
    int64_t train_images, test_images; /* of synthetic data; 0: its own choice */
    int64_t seq_length;                /* tokens that a model sees at once; 0: 256 */
    rpi_picture_options pictures;      /* of folders of pictures */
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
    int64_t zero; /* what ranks share: 0 nothing, 1 the optimizer's state, 2 gradients, too, 3
                     all */
    bool host_shards; /* by 3 ranks of each host keep a second copy among them, from which
                         they gather until it is stepped */
    const char *weights_codec;     /* with zero, of parameters that owners send; NULL: exact */
    const char *activations_codec; /* of what stages, and ranks that share layers, hand each
                                      other; NULL: exact */
    int64_t warmup_exact;          /* first steps with the exact codec */

    const char *backend; /* NULL: the fastest */
    const char *dtype;   /* what products compute in: "fp32" or "bf16"; NULL: fp32 */
    int64_t threads;     /* 0: one a core */
    bool memory_check;   /* what would not fit a host's memory is refused at the start */
    double memory_bytes; /* then, what its ranks may have together; 0: as much as is seen */
    bool recompute;      /* activations inside blocks are made again, not kept */

    const char *out;          /* folder; NULL: nothing is written */
    const char *resume;       /* folder of a checkpoint, or NULL */
    int64_t checkpoint_every; /* steps; 0: by time and at the end */
    double checkpoint_time_s; /* at the latest so long after the one before; 0: by steps */
    bool checkpoint;          /* false: none at all */
    int64_t keep;             /* so many of the newest stay; 0: one */
    bool checkpoint_pieces;   /* each rank saves its part of what all have, at once */
    bool overwrite;           /* start anew in a folder that holds a run */
    int64_t eval_every;       /* steps; 0: at the end only */
    int64_t eval_images;      /* first samples of those held out; 0: all */
    bool eval;                /* false: none at all */
    int64_t check_replicas;   /* steps; 0: at the start and before checkpoints only */
    int64_t
        log_every; /* steps between what ranks tell each other; 0: about five times a second */
    int64_t sample_every;  /* steps between two texts of a language model; 0: none */
    const char *prompt;    /* that they begin with */
    int64_t sample_tokens; /* new ones, at most; 0: RPI_SAMPLE_TOKENS */
    bool trace, profile;
    const rpi_train_returns *returns; /* NULL: who is lost stays away */

    /* Where the settings come from, for the header of metrics.jsonl, and as they were given,
     * before anything was chosen, for settings.json; NULL: not written. Ranks compare those
     * options of the table that are fields of this struct in `target`. */
    const rpi_option *table;
    const void *target, *given;
} rpi_train_options;

/* How many ranks an axis of a replica has, of which 0 says that nothing was said: one. */
static inline int64_t rpi_train_axis(int64_t said) {
    return said > 1 ? said : 1;
}

/* One step, as rank 0 saw it (docs/json.md). */
typedef struct rpi_step_metrics {
    int64_t step, count; /* steps done; what all ranks learnt from in this one, */
    const char *unit;    /* counted in: "images" */
    double loss, lr;
    double gradient_norm;                        /* before clipping; NaN: not measured */
    double outer_gradient_norm, autocorrelation; /* of local-sgd's exchanges; else NaN */
    /* Of parameter servers, steps and merges between a gradient's parameters and its own merge;
     * else NaN. */
    double staleness_mean, staleness_max, missed_updates;
    double step_s, compute_s, comm_s, encode_s, decode_s, exposed_s, skew_s;
    uint64_t wire_bytes;
    uint64_t wire_bytes_received; /* with a staleness only */
} rpi_step_metrics;

typedef struct rpi_evaluation {
    double loss, accuracy; /* NaN where count is 0 */
    double perplexity;     /* NaN: of no meaning for the task */
    int64_t count;         /* labels that it is over; 0: no token happened to be hidden */
    const char *unit;      /* "images" */
    /* Of whole samples, where the task has a loss of them, which `loss` then holds, too. Its
     * name: "nsp"; NULL: there is none. */
    const char *sample_metric;
    double sample_loss, sample_accuracy;
    rpi_scores scores; /* of data that have their own */
    double
        consensus_distance; /* of ranks with parameters of their own (consensus.h); else NaN */
} rpi_evaluation;

enum { RPI_MEDIAN_STEPS = 1 << 16, RPI_SAMPLE_TOKENS = 40 };

/* Ranks have died, and the others go on: by their numbers when the run began. */
typedef struct rpi_loss {
    int64_t step; /* all that are left go on behind it */
    const int *ranks;
    int count;
    const char *line; /* "rank 2 is lost after step 57 (...); ranks 0, 1 and 3 go on" */
} rpi_loss;

/* Ranks are back: by their numbers when the run began. */
typedef struct rpi_back {
    int64_t step;
    const int *ranks;
    int count;
    const char *line; /* "rank 2 is back behind step 57; ranks 0, 1, 2 and 3 go on" */
} rpi_back;

enum { RPI_LOSSES_TEXT = 256 };

typedef struct rpi_train_result {
    int64_t first_step, steps; /* those that this run did */
    double last_loss, seconds; /* of training, without evaluation and checkpoints */
    /* Medians over the latest RPI_MEDIAN_STEPS steps at most; NaN without any. */
    double rate_median; /* of `unit` ("images") in a second */
    const char *unit;
    double step_s_median, comm_s_median, exposed_s_median, wire_bytes_median;
    /* Means over the same steps, for strategies that do not exchange in each; NaN without any.
     */
    double exposed_s_mean, wire_bytes_mean;
    bool evaluated;
    rpi_evaluation test;
    int rank, ranks;            /* this one's number at the end, and how many were left */
    char lost[RPI_LOSSES_TEXT]; /* "rank 2 after step 57, rank 0 after step 80"; "": none */
    char back[RPI_LOSSES_TEXT]; /* likewise, of ranks that have come back */
    bool is_late;               /* this rank came back when the run was over: it did nothing */
    bool stopped;               /* before the end, because a rank was asked to */
    double memory_bytes;        /* the most that this process has held; NaN: not known */
    /* With a lossy codec of activations, by how much they, and their gradients, were off, of
     * all ranks: root of sums of squares, relative; else NaN. */
    double activations_error, activation_gradients_error;
    rpi_profile profile; /* of this rank; no steps: not asked for */
} rpi_train_result;

/* What a rank may be asked for from outside while it trains, a bit each. */
enum { RPI_ASKED_SAVE = 1, RPI_ASKED_STOP = 2 };

/* Told on every rank, on the training thread; any may be NULL. */
typedef struct rpi_train_hooks {
    void *context;
    /* All is loaded and checked; the first step follows. */
    void (*started)(void *context, int64_t first_step, int64_t last_step, int64_t parameters);
    /* Steps in their order, each when the losses of all ranks are there: several at once. */
    void (*stepped)(void *context, const rpi_step_metrics *metrics);
    void (*evaluated)(void *context, int64_t step, const rpi_evaluation *evaluation);
    /* A text of the model's after these steps, the prompt first; rank 0. */
    void (*sampled)(void *context, int64_t step, const char *text);
    void (*saved)(void *context, int64_t step, const char *path);
    void (*note)(void *context, const char *line);
    /* Ranks have died, and the run goes on. first: this rank is rank 0 from now on, which it
     * was not before. */
    void (*lost)(void *context, const rpi_loss *loss, bool first);
    /* RPI_ASKED_* of this rank since the last call; RPI_ASKED_STOP stays. Called once a step.
     * All ranks do what any was asked for, after the same step, at the latest `log_every` steps
     * on: save a checkpoint; save one and end. May be given on any rank, also where nothing
     * else is. */
    int (*asked)(void *context);
} rpi_train_hooks;

/* What can be said before any rank starts: are names known, do numbers fit together? world 0:
 * not known yet. RP_INVALID: a mistake of usage. */
rp_status rpi_train_check(const rpi_train_options *options, int world);

/* Are the files there that this run reads, and may it write where it shall? Quick; creates
 * nothing. RP_INVALID: a mistake of usage. */
rp_status rpi_train_check_files(const rpi_train_options *options);

/* Train. Collective; blocks. When it fails on one rank it fails on all, with a message that
 * names the rank. comm: NULL on a rank that comes back (options->returns). The same options,
 * seed, ranks, threads and machine give the same bytes. */
rp_status rpi_train(const rpi_train_options *options, rp_comm *comm,
                    const rpi_train_hooks *hooks, rpi_train_result *out_result);

#endif
