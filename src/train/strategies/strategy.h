/* The contract of a strategy, which strategies.c lists: how gradients of several ranks become
 * one step of all. A new strategy is one file that exports one `const rpi_strategy`, one row in
 * strategies.c and one word in CMakeLists.txt. */
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
    int workers; /* that learnt when the run began, where that may be more than there are now;
                    0: it is not */
    bool may_return;        /* the launcher starts those that are lost again */
    const int *first_ranks; /* of each rank its number then, which may change; NULL: the same */
    const rpi_network *network;
    rpi_weights *weights;
    rp_codec codec;
    int64_t codec_every; /* bits of tensors are chosen anew so often; 0: never */
    uint8_t *levels; /* then: what was chosen, one a parameter of the network; 0: the codec */
    int64_t
        *lossy_from; /* then: of buckets of fewer elements (bit_chooser.h) the codec is slower
                        than exact; RPI_LOSSY_UNKNOWN: to be tried. NULL: nobody asks */
    const char *options;   /* behind the strategy's name and a colon; NULL: none */
    const char *algorithm; /* NULL: chosen */
    uint64_t seed;
    int64_t bucket_bytes;
    int64_t warmup_exact;
    double clip;                          /* largest norm of gradients; 0: any */
    float *residual;                      /* one float an element of the gradients, or NULL */
    const rpi_optimizer_state *optimizer; /* of what this rank owns: all, without: */
    rp_codec weights_codec; /* of the way of stepped values to ranks that do not own them */
    const rpi_ownership *ownership; /* of strategies that share it: who owns what; NULL: every
                                       rank owns everything */
    rp_comm *host; /* of ranks of a host that keep a copy of parameters that pass; NULL: none */
    rpi_timeline *timeline;
    /* The gradients in this range are the world's: step these parameters. */
    void (*update)(void *context, int64_t first, int64_t count);
    /* Before any update, once for each gradient, in any ranges: the world's gradients, to be
     * added to their norm; then that all of them were. parts: over whose ranks each of them was
     * measured once, by its owner, a collective call; NULL: this rank has measured all. It may
     * also be collective over ranks that hold the rest of the model, and fail: then nothing is
     * updated. Both NULL: updates do not wait for a norm. */
    void (*measure)(void *context, int64_t first, int64_t count);
    rp_status (*measured)(void *context, rp_comm *parts);
    /* Learning rate of the current step. */
    double (*rate)(void *context);
    /* Optional: the thread that computes has waited for the other ranks of `comm`. */
    void (*waited)(void *context, int64_t start_ns, int64_t end_ns);
    /* Other bits were chosen: a line that says so. NULL: nobody asks. */
    void (*chose)(void *context, const char *line);
    /* Something that the user should know, in a line. NULL: nobody asks. */
    void (*note)(void *context, const char *line);
    void *context;
} rpi_strategy_setup;

/* What a strategy looks at before anything is opened. */
typedef struct rpi_strategy_request {
    const char *options; /* NULL: none */
    int world;           /* 0: not known yet */
    bool plain_sgd;      /* the optimizer steps against the gradient and does nothing else */
    bool whole_tensors;  /* the optimizer steps no part of a tensor */
    bool warmup_exact, chooses_bits;
    bool lossy, error_feedback; /* of the codec */
} rpi_strategy_request;

/* Of every strategy that can go on without ranks that die: what it is when absent. */
#define RPI_STRATEGY_ON_LOSS(offset, help)                                                     \
    RPI_STRATEGY_OPTION("on-loss", RPI_OPTION_TEXT, offset, "stop", 0, 0, "WHAT", help)

enum { RPI_STRATEGY_STATES = 4 };

/* ---- ranks with roles: servers, which step parameters, and workers, which learn ---- */

/* What a worker has learnt from its part of a step. */
typedef struct rpi_strategy_part {
    double loss;  /* its part of the batch's */
    double share; /* of all that counts in the loss */
    double count; /* of what the task counts */
    double compute_s;
    int asked;      /* RPI_ASKED_* of this rank */
    bool has_fault; /* the run is to end */
} rpi_strategy_part;

/* Elements [first, first + count) are to be stepped where they lie: pointers are theirs. */
typedef struct rpi_strategy_update {
    int64_t first, count, step; /* step: the schedule's */
    uint64_t updates;           /* before this one */
    float *values;
    float *gradient;      /* what is left there means nothing */
    float gradient_scale; /* 0: as it is */
    double rate_scale;    /* of the schedule's rate */
} rpi_strategy_update;

/* Steps of the world are done, as the first server sees it: sums over them; means over pushes.
 */
typedef struct rpi_strategy_step {
    int64_t step, steps; /* done in all, and since it was told the last time */
    double loss;         /* a mean */
    double count, compute_s, exposed_s;
    double staleness_mean, staleness_max; /* pushes of another */
    double missed_updates;
    double autocorrelation; /* of what workers have brought; NaN: none */
    uint64_t bytes_sent, bytes_received;
    int asked;
    bool has_fault;
} rpi_strategy_step;

typedef struct rpi_strategy_span {
    int64_t first_step, last_step; /* steps before it, and behind it */
    void *context;
    /* Gradients of this worker's part of a step; gradient_final() is called meanwhile. */
    rp_status (*learn)(void *context, int64_t step, rpi_strategy_part *out_part);
    void (*update)(void *context, const rpi_strategy_update *update);
    /* On the first server. *out_stops: nothing beyond the step under way. */
    rp_status (*stepped)(void *context, const rpi_strategy_step *step, bool *out_stops);
} rpi_strategy_span;

/* Of a step; NaN: of no meaning in this one. */
typedef struct rpi_strategy_report {
    double outer_gradient_norm; /* of the mean pseudo-gradient whose exchange has ended */
    double autocorrelation;     /* cosine of it and the one before */
} rpi_strategy_report;

typedef struct rpi_strategy {
    const char *name, *summary;
    int most_ranks;        /* 0: any number */
    bool replicas_differ;  /* between steps, by intention: nobody compares them */
    bool shares_optimizer; /* its ranks may own a part each (setup.ownership) */
    bool sends_gradients;  /* from where they lie: other ranks may read them there */
    /* What may stand behind its name and a colon, into a struct of its own (see
     * rpi_strategy_read): rows of RPI_STRATEGY_OPTION, which help and documents show. NULL:
     * nothing. */
    const rpi_option *options;
    /* RP_INVALID, RP_UNSUPPORTED: options, or a world, that cannot be: what can. NULL: it has
     * no options. */
    rp_status (*check)(const rpi_strategy_request *request);
    /* Does it take the setup's `residual`? By options that were checked. NULL: it does. */
    bool (*feeds_back)(const char *options);
    /* The setup is copied; what it points to outlives the strategy. */
    rp_status (*open)(const rpi_strategy_setup *setup, void **out_self);
    /* Also after a failure; the communicator was then told (rp_comm_abort). */
    void (*close)(void *self);
    /* Step `step` begins: its gradients will come in order. */
    void (*begin)(void *self, int64_t step);
    /* The rank's own gradients in [first, first + count) are there, in the order of the arena,
     * without gaps, while the backward pass still runs. Does not block. RP_INTERNAL: they are
     * not those that come next. */
    rp_status (*gradient_final)(void *self, int64_t first, int64_t count);
    /* A pass of this program begins, on all ranks alike, learning or judging. NULL: it does not
     * matter. */
    rp_status (*pass)(void *self, const rpi_program *program, rpi_pass pass);
    /* What the engine tells of the index-th parameter while the model runs, learning or judging
     * (rpi_run_options.on_parameter): values that are needed are there when this returns. Waits
     * may follow for what an earlier finish() has left under way. NULL: all values are there.
     */
    rp_status (*use)(void *self, int parameter, rpi_parameter_event event);
    /* Values of all parameters are to be read or written outside of the model: wait for what an
     * earlier finish() has left under way. NULL: nothing ever is. */
    rp_status (*complete)(void *self);
    /* Where ranks have the values of what they own alone: those of all parameters to where the
     * arena of values is, which the caller has opened. Collective. NULL: all ranks have all. */
    rp_status (*gather_values)(void *self);
    /* A traced step: note what communication has ended meanwhile. NULL: nothing to note. */
    void (*observe)(void *self);
    /* All gradients are there: wait, update everything. *out_exposed_ns: time blocked.
     * RP_INTERNAL, and nothing is stepped: some were not told. Where
     * others go on without a rank that dies, RP_PEER says that one has, and the step is done
     * all the same, by this rank alone, as are all that follow before rejoin(). */
    rp_status (*finish)(void *self, int64_t *out_exposed_ns);
    /* What was noted of its options before the first step, of which ranks may drift apart or
     * training diverge; returns NULL, as the function may be, where there was nothing. */
    const char *(*suspect)(void *self);
    const char
        *nearer; /* what brings ranks nearer that are far apart, behind "try "; or NULL */
    /* What there is to tell of the step that has ended. NULL: nothing. */
    void (*report)(void *self, rpi_strategy_report *out_report);
    /* What it keeps from step to step, a float a parameter each, in the order of the arena: how
     * many. Checkpoints hold them where replicas differ. Then that they were read from one.
     * NULL: there is nothing. */
    int (*states)(void *self, float *out_states[RPI_STRATEGY_STATES]);
    void (*resumed)(void *self);
    /* A number that it keeps beside them. NULL: none. */
    uint64_t *(*counter)(void *self);
    /* Ranks with roles. So many of the first ranks learn nothing; NULL: none. `options` were
     * checked. */
    int (*servers)(const char *options);
    /* Do others go on without a rank that dies? Options were checked. NULL: no. */
    bool (*survives)(const char *options);
    /* Then, of one without roles: go on over those that are left, all of which have done `step`
     * steps. Collective; after an RP_PEER it is tried again without those that died meanwhile.
     */
    rp_status (*rejoin)(void *self, rp_comm *comm, int64_t step);
    /* In place of begin ... finish, of which only gradient_final is called: this rank's part of
     * a span of steps. Then all ranks have the same parameters, and but for replicas_differ the
     * same optimizer's state.
     * *out_comm: of those that are left. NULL: every rank takes part in each step. */
    rp_status (*run)(void *self, const rpi_strategy_span *span, rp_comm **out_comm);
    /* Then, of one that outlives ranks: what all ranks do behind a span has ended with `status`
     * on this one. *out_again: a rank has died, and all of it is done again, over *out_comm, of
     * those that are left. Collective; a status that is no death's is returned. */
    rp_status (*confirm)(void *self, rp_status status, bool *out_again, rp_comm **out_comm);
    /* Then, behind run() or confirm(): why this rank of the first communicator was left behind;
     * NULL: it was not. Only rank 0 knows it in full. */
    const char *(*lost)(void *self, int rank);
    /* Then, between spans: workers have come back. grow(): prepare to go on over `comm`, of all
     * that live and of those, who open() over it meanwhile; the present one stays as it is.
     * Collective over `comm`. settle(), also after a grow() that has failed: go on over it, or
     * as before. NULL: nobody comes back. */
    rp_status (*grow)(void *self, rp_comm *comm);
    void (*settle)(void *self, bool grows);
} rpi_strategy;

#define RPI_STRATEGY_OPTION(name, type, offset, fallback, min, max, value, help)               \
    { name, NULL, name, type, offset, fallback, min, max, value, help, NULL }

/* Texts that a strategy's options point to. */
typedef struct rpi_strategy_words {
    char text[512];
} rpi_strategy_words;

/* Defaults, then what `text` says (NULL: nothing), into the strategy's struct. A comma may also
 * belong to a value that has options of its own ("topology=exponential:base=3,symmetric=on"):
 * an option begins where one of the table's names and '=' stand. RP_INVALID: what is wrong. */
rp_status rpi_strategy_read(const rpi_strategy *strategy, const char *text,
                            rpi_strategy_words *words, void *target);

/* The catalogue; NULL past the end. */
const rpi_strategy *rpi_strategy_at(int index);
/* By NAME or NAME:OPTIONS. RP_INVALID names those there are, and the nearest. */
rp_status rpi_strategy_find(const char *text, const rpi_strategy **out_strategy);
/* What stands behind the colon; NULL: nothing. */
const char *rpi_strategy_options(const char *text);
/* The strategy with these options (NULL: none), but for all that have this name. RP_INVALID:
 * they are too long. */
rp_status rpi_strategy_drop_option(const rpi_strategy *strategy, const char *text,
                                   const char *name, char *out_text, size_t bytes);
/* Do ranks that die leave the others going, by this text? false also where it is wrong.
 * *out_vital: so many of the first do not. */
bool rpi_strategy_survives(const char *text, int *out_vital);
/* RP_INVALID: ranks that died cannot come back, by this text, and by which they can. */
rp_status rpi_strategy_check_returns(const char *text);
/* What an option on-loss says: stop or continue. */
rp_status rpi_strategy_on_loss(const char *strategy, const char *text, bool *out_goes_on);
/* The text with another on-loss. RP_INVALID: a strategy that has none, and which have. */
rp_status rpi_strategy_set_on_loss(const char *text, const char *on_loss, char *out_text,
                                   size_t bytes);
/* Are these the same training, whatever becomes of it when a rank dies? */
bool rpi_strategy_alike(const char *a, const char *b);
/* Of one that was found. RP_INVALID where it cannot be. */
rp_status rpi_strategy_check(const rpi_strategy *strategy, const rpi_strategy_request *request);

#endif
