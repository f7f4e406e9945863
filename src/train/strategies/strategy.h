/* The contract of a strategy, which strategies.c lists: how the gradients of several ranks
 * become one step of all ranks. A new strategy is one file that exports one `const
 * rpi_strategy`, one row in strategies.c and one word in CMakeLists.txt. */
#ifndef RPI_TRAIN_STRATEGY_H
#define RPI_TRAIN_STRATEGY_H

#include "base/option.h"
#include "engine/program.h"
#include "redpoll/comm.h"
#include "train/models/network.h"
#include "train/ownership.h"
#include "train/timeline.h"

typedef struct rpi_strategy_setup {
    rp_comm *comm;
    /* ranks that learnt when the run began, if fewer may learn now; 0: all learn */
    int workers;
    bool may_return; /* the launcher restarts ranks that are lost */
    /* each rank's number at the start, if numbers may change; NULL: they do not */
    const int *first_ranks;
    const rpi_network *network;
    rpi_weights *weights;
    rp_codec codec;
    /* steps between two choices of tensors' bits; 0: bits are not chosen */
    int64_t codec_every;
    uint8_t *levels; /* with it: the choice, one a parameter of the network; 0: the codec */
    int64_t
        /* with it: for buckets of fewer elements (bit_chooser.h) the codec is slower than
         * exact; RPI_LOSSY_UNKNOWN: to be tried. NULL: not compared */
        *lossy_from;
    const char *options;   /* the text after the strategy's name and colon; NULL: none */
    const char *algorithm; /* NULL: chosen by size */
    uint64_t seed;
    int64_t bucket_bytes;
    int64_t warmup_exact;
    double clip;     /* largest norm of gradients; 0: no limit */
    float *residual; /* one float for each element of the gradients, or NULL */
    /* of what this rank owns: everything without `ownership` */
    const rpi_optimizer_state *optimizer;
    rp_codec weights_codec; /* the codec of updated values that owners send to other ranks */
    /* which rank owns what, for strategies that share the optimizer; NULL: every rank owns
     * everything */
    const rpi_ownership *ownership;
    rp_comm *host; /* the host's ranks that keep a copy of gathered parameters; NULL: none */
    rpi_timeline *timeline;
    /* The gradients in this range are the sums over all ranks: updates these parameters. */
    void (*update)(void *context, int64_t first, int64_t count);
    /* Before any update. measure() is called with the summed gradients, once for each of them
     * and in any ranges, and adds them to their norm; measured() after all of them. parts: a
     * communicator over whose ranks each gradient was measured once, by its owner, which makes
     * the call collective; NULL: this rank has measured all. The call may also be collective
     * over ranks that hold the rest of the model, and may fail: then nothing is updated. Both
     * NULL: updates do not wait for a norm. */
    void (*measure)(void *context, int64_t first, int64_t count);
    rp_status (*measured)(void *context, rp_comm *parts);
    /* The learning rate of the current step. */
    double (*rate)(void *context);
    /* Optional: called when the computing thread has waited for the other ranks of `comm`. */
    void (*waited)(void *context, int64_t start_ns, int64_t end_ns);
    /* Called with a line when other bits were chosen; NULL: not reported. */
    void (*chose)(void *context, const char *line);
    /* Called with a line that the user should know; NULL: not reported. */
    void (*note)(void *context, const char *line);
    void *context;
} rpi_strategy_setup;

/* What a strategy checks before anything is opened. */
typedef struct rpi_strategy_request {
    const char *options; /* NULL: none */
    int world;           /* 0: not known yet */
    bool plain_sgd;      /* the optimizer subtracts the gradient and does nothing else */
    bool whole_tensors;  /* the optimizer can update whole tensors only */
    bool warmup_exact, chooses_bits;
    bool lossy, error_feedback; /* of the codec */
} rpi_strategy_request;

/* The option of every strategy that can go on without ranks that die; its default is stop. */
#define RPI_STRATEGY_ON_LOSS(offset, help)                                                     \
    RPI_STRATEGY_OPTION("on-loss", RPI_OPTION_TEXT, offset, "stop", 0, 0, "WHAT", help)

enum { RPI_STRATEGY_STATES = 4 };

/* ---- ranks with roles: servers, which step parameters, and workers, which learn ---- */

/* What a worker has learnt from its part of a step. */
typedef struct rpi_strategy_part {
    double loss;  /* of its part of the batch */
    double share; /* of all labels and samples in the loss */
    double count; /* of what the task counts */
    double compute_s;
    int asked;      /* RPI_ASKED_* bits that this rank was sent */
    bool has_fault; /* this rank has a fault that ends the run */
} rpi_strategy_part;

/* Elements [first, first + count) are to be updated where the pointers say. */
typedef struct rpi_strategy_update {
    int64_t first, count, step; /* step: the schedule's */
    uint64_t updates;           /* updates before this one */
    float *values;
    float *gradient;      /* undefined afterwards */
    float gradient_scale; /* 0: unscaled */
    double rate_scale;    /* multiplies the schedule's rate */
} rpi_strategy_update;

/* Steps of the world that are done, as the first server counts them: sums over the steps, means
 * over pushes. */
typedef struct rpi_strategy_step {
    int64_t step, steps; /* steps done in all, and since the last report */
    double loss;         /* a mean */
    double count, compute_s, exposed_s;
    double staleness_mean, staleness_max; /* pushes of other workers meanwhile */
    double missed_updates;
    double autocorrelation; /* of what workers have pushed; NaN: none */
    uint64_t bytes_sent, bytes_received;
    int asked;
    bool has_fault;
} rpi_strategy_step;

typedef struct rpi_strategy_span {
    int64_t first_step, last_step; /* steps before the span, and at its end */
    void *context;
    /* Computes gradients of this worker's part of a step, and calls gradient_final() meanwhile.
     */
    rp_status (*learn)(void *context, int64_t step, rpi_strategy_part *out_part);
    void (*update)(void *context, const rpi_strategy_update *update);
    /* Called on the first server. *out_stops: the run ends with the current step. */
    rp_status (*stepped)(void *context, const rpi_strategy_step *step, bool *out_stops);
} rpi_strategy_span;

/* Numbers about a step; NaN: not defined for it. */
typedef struct rpi_strategy_report {
    double outer_gradient_norm; /* of the mean pseudo-gradient of the exchange that has ended */
    double autocorrelation;     /* the cosine between it and the one before */
} rpi_strategy_report;

typedef struct rpi_strategy {
    const char *name, *summary;
    int most_ranks;        /* 0: no limit */
    bool replicas_differ;  /* between steps, on purpose, so that they are not compared */
    bool shares_optimizer; /* its ranks may own a part each (setup.ownership) */
    bool all_reduces;      /* sums by rp_all_reduce, with the setup's algorithm */
    bool sends_gradients;  /* from their place: other ranks may read them there */
    /* The options that may follow its name and a colon, read into a struct of its own (see
     * rpi_strategy_read): rows of RPI_STRATEGY_OPTION, which help and documents show. NULL:
     * none. */
    const rpi_option *options;
    /* RP_INVALID, RP_UNSUPPORTED: options, or a world, that are not possible; the message says
     * what is. NULL: it has no options. */
    rp_status (*check)(const rpi_strategy_request *request);
    /* Does it use the setup's `residual`, with these checked options? NULL: it does. */
    bool (*feeds_back)(const char *options);
    /* Copies the setup; what the setup points to must outlive the strategy. */
    rp_status (*open)(const rpi_strategy_setup *setup, void **out_self);
    /* Also called after a failure, when the communicator has been aborted (rp_comm_abort). */
    void (*close)(void *self);
    /* Step `step` begins: its gradients will be reported in order. */
    void (*begin)(void *self, int64_t step);
    /* The rank's own gradients in [first, first + count) are final. They are reported in the
     * order of the arena, without gaps, while the backward pass runs. Does not block.
     * RP_INTERNAL: another range was due. */
    rp_status (*gradient_final)(void *self, int64_t first, int64_t count);
    /* A pass of this program begins, on all ranks alike, to learn or to evaluate. NULL: the
     * strategy does not need it. */
    rp_status (*pass)(void *self, const rpi_program *program, rpi_pass pass);
    /* The model needs the index-th parameter, or is done with it, while it learns or evaluates
     * (rpi_run_options.on_parameter). Needed values are there when this returns. It may wait
     * for what an earlier finish() has left under way. NULL: all values are there. */
    rp_status (*use)(void *self, int parameter, rpi_parameter_event event);
    /* The values of all parameters will be read or written outside of the model: waits for what
     * an earlier finish() has left under way. NULL: nothing ever is. */
    rp_status (*complete)(void *self);
    /* If ranks have only the values that they own: gathers those of all parameters into the
     * arena of values, which the caller has opened. Collective. NULL: all ranks have all. */
    rp_status (*gather_values)(void *self);
    /* In a traced step: notes which communication has ended meanwhile. NULL: not noted. */
    void (*observe)(void *self);
    /* All gradients were reported: waits, and updates everything. *out_exposed_ns: the time for
     * which it blocked. RP_INTERNAL, and nothing is updated: some gradients were not reported.
     * If others go on without a rank that dies, RP_PEER says that one has died. This rank has
     * then made the step alone, and makes all following ones alone until rejoin(). */
    rp_status (*finish)(void *self, int64_t *out_exposed_ns);
    /* What was noted about its options before the first step, because ranks may drift apart or
     * training diverge. Returns NULL if nothing was; the function may be NULL, too. */
    const char *(*suspect)(void *self);
    const char
        *nearer; /* what would bring ranks that are far apart closer, after "try "; or NULL */
    /* Reports on the step that has ended. NULL: it reports nothing. */
    void (*report)(void *self, rpi_strategy_report *out_report);
    /* states(): the number of vectors that it keeps from step to step, each of one float a
     * parameter in the order of the arena. Checkpoints contain them where replicas differ.
     * restored(): they were read from a checkpoint. NULL: it keeps none. */
    int (*states)(void *self, float *out_states[RPI_STRATEGY_STATES]);
    void (*resumed)(void *self);
    /* A number that it keeps beside these vectors. NULL: none. */
    uint64_t *(*counter)(void *self);
    /* For strategies whose ranks have roles: the first ranks that only serve. NULL: none.
     * `options` were checked. */
    int (*servers)(const char *options);
    /* Do other ranks go on when one dies, with these checked options? NULL: no. */
    bool (*survives)(const char *options);
    /* If they do and there are no roles: goes on over the ranks that are left, all of which
     * have made `step` steps. Collective; after RP_PEER it is called again without the ranks
     * that died meanwhile. */
    rp_status (*rejoin)(void *self, rp_comm *comm, int64_t step);
    /* For strategies with roles, instead of begin() ... finish(), of which only
     * gradient_final() is called: this rank's part of a span of steps. Afterwards all ranks
     * have the same parameters and, unless replicas_differ, the same optimizer's state.
     * *out_comm: the ranks that are left. NULL: every rank takes part in each step. */
    rp_status (*run)(void *self, const rpi_strategy_span *span, rp_comm **out_comm);
    /* If it survives ranks: what all ranks do after a span has ended with `status` on this
     * rank. *out_again: a rank has died, and all of it must be repeated over *out_comm, the
     * ranks that are left. Collective; a status that no death has caused is returned. */
    rp_status (*confirm)(void *self, rp_status status, bool *out_again, rp_comm **out_comm);
    /* After run() or confirm(): why this rank of the first communicator was left behind; NULL:
     * it was not. Only rank 0 knows about all of them. */
    const char *(*lost)(void *self, int rank);
    /* Between spans, when workers have come back. grow(): prepares to go on over `comm`, which
     * has all living ranks and those workers; the workers call open() over it meanwhile. The
     * present communicator stays as it is. Collective over `comm`. settle(): goes on over it,
     * or as before if grow() has failed. NULL: workers cannot come back. */
    rp_status (*grow)(void *self, rp_comm *comm);
    void (*settle)(void *self, bool grows);
} rpi_strategy;

#define RPI_STRATEGY_OPTION(name, type, offset, fallback, min, max, value, help)               \
    { name, NULL, name, type, offset, fallback, min, max, value, help, NULL }

/* The texts to which a strategy's options point. */
typedef struct rpi_strategy_words {
    char text[512];
} rpi_strategy_words;

/* Writes defaults, then the options in `text` (NULL: none), into the strategy's struct. A comma
 * may also belong to a value that has options of its own
 * ("topology=exponential:base=3,symmetric=on"): a new option begins only where one of the
 * table's names and '=' follow. RP_INVALID: the message says what is wrong. */
rp_status rpi_strategy_read(const rpi_strategy *strategy, const char *text,
                            rpi_strategy_words *words, void *target);

/* The catalogue; NULL past the end. */
const rpi_strategy *rpi_strategy_at(int index);
/* Finds by NAME or NAME:OPTIONS. RP_INVALID: unknown; the message lists the names and suggests
 * the nearest. */
rp_status rpi_strategy_find(const char *text, const rpi_strategy **out_strategy);
/* The text after the colon; NULL: there is none. */
const char *rpi_strategy_options(const char *text);
/* The strategy with these options (NULL: none), except all that have this name. RP_INVALID: the
 * result is too long. */
rp_status rpi_strategy_drop_option(const rpi_strategy *strategy, const char *text,
                                   const char *name, char *out_text, size_t bytes);
/* Do the others go on when a rank dies, by this text? false also if the text is wrong.
 * *out_vital: the number of first ranks without which they do not. */
bool rpi_strategy_survives(const char *text, int *out_vital);
/* RP_INVALID: with this text, ranks that died cannot come back; the message says with which
 * they can. */
rp_status rpi_strategy_check_returns(const char *text);
/* Reads the value of an option on-loss: stop or continue. */
rp_status rpi_strategy_on_loss(const char *strategy, const char *text, bool *out_goes_on);
/* The text with another on-loss. RP_INVALID: the strategy has no such option; the message says
 * which have. */
rp_status rpi_strategy_set_on_loss(const char *text, const char *on_loss, char *out_text,
                                   size_t bytes);
/* Are these the same training, apart from what happens when a rank dies? */
bool rpi_strategy_alike(const char *a, const char *b);
/* Checks a strategy that was found. RP_INVALID: it is not possible. */
rp_status rpi_strategy_check(const rpi_strategy *strategy, const rpi_strategy_request *request);

#endif
