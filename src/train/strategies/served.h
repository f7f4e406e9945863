/* What strategies with parameter servers have in common (redpoll/parameter_server.h): roles,
 * spans of steps, the numbers that pushes bring to the first server, and what all ranks do
 * after a span. A strategy decides what a worker pushes, and how servers merge it.
 *
 * A span of steps is cut into rounds. In a round each worker pushes once, or other workers push
 * in its place. */
#ifndef RPI_TRAIN_SERVED_H
#define RPI_TRAIN_SERVED_H

#include "redpoll/parameter_server.h"
#include "train/strategies/bucket.h"
#include "train/strategies/strategy.h"

/* ---- options ---- */

/* As options write them; the first member of the strategy's own struct. */
typedef struct rpi_served_choice {
    const char *servers, *staleness, *on_loss; /* point into `words` */
    int64_t quorum;
    double grace_ms;
    rpi_strategy_words words;
} rpi_served_choice;

#define RPI_SERVED_OPTION(name, type, field, fallback, most, value, help)                      \
    RPI_STRATEGY_OPTION(name, type, offsetof(rpi_served_choice, field), fallback, 0, most,     \
                        value, help)
#define RPI_SERVED_SERVERS                                                                     \
    RPI_SERVED_OPTION("servers", RPI_OPTION_TEXT, servers, "shared", 0, "N",                   \
                      "ranks that keep the parameters and do nothing else, or shared: every "  \
                      "rank keeps a part of them, and learns")
#define RPI_SERVED_STALENESS(fallback, help)                                                   \
    RPI_SERVED_OPTION("staleness", RPI_OPTION_TEXT, staleness, fallback, 0, "N", help)
#define RPI_SERVED_QUORUM(help)                                                                \
    RPI_SERVED_OPTION("quorum", RPI_OPTION_COUNT, quorum, "0", 1e6, "N", help)
#define RPI_SERVED_GRACE                                                                       \
    RPI_SERVED_OPTION("grace", RPI_OPTION_REAL, grace_ms, "0", 0, "MS",                        \
                      "milliseconds for which a quorum waits for more")
#define RPI_SERVED_ON_LOSS                                                                     \
    RPI_STRATEGY_ON_LOSS(offsetof(rpi_served_choice, on_loss),                                 \
                         "stop, or continue without workers that die, or are silent too "      \
                         "long; not with servers=shared")

/* strategy: its name, for messages. RP_INVALID: an option cannot be read. */
rp_status rpi_served_read(const char *strategy, const rpi_served_choice *choice,
                          rp_parameter_server_options *out_options);
rp_status rpi_served_check(const char *strategy, const rp_parameter_server_options *options,
                           const rpi_strategy_request *request);

/* ---- the strategy's part ---- */

/* On the first server: sums over the pushes since the last round. */
typedef struct rpi_served_tally {
    double loss, share, count, compute_s, wait_s, stale, stalest, missed, autocorrelation;
    int pushes, correlated, asked;
    bool has_fault;
} rpi_served_tally;

typedef struct rpi_served {
    rpi_strategy_setup setup;
    rp_parameter_server_options options;
    rp_parameter_server *server;
    rp_parameter_server *next; /* over the communicator that includes workers which come back */
    rp_comm *next_comm;
    rpi_buckets layout;
    const rpi_strategy_span *span; /* the current one */
    int64_t rounds;                /* of the span */
    int64_t own_step;              /* the next one that this worker learns from; -1: none yet */
    double waited_s;               /* for the answer to its last push */
    rpi_served_tally since;
    int surplus;            /* this worker's pushes that belong to the next round */
    int64_t rounds_told;    /* reported of this span */
    double autocorrelation; /* in the last reported round; NaN: none */
    rp_comm_stats before;   /* when that round was reported */
} rpi_served;

/* options: as read; the strategy sets merge and context. The caller must close it, also after a
 * failure; zeros are fine. Collective. */
rp_status rpi_served_open(const rpi_strategy_setup *setup,
                          const rp_parameter_server_options *options, rpi_served *served);
void rpi_served_close(rpi_served *served);

/* Begins a span: from now on the servers' parameters count. Collective. */
rp_status rpi_served_begin(rpi_served *served, const rpi_strategy_span *span, int64_t rounds);
/* The number of the span's steps before one of its rounds. */
int64_t rpi_served_border(const rpi_served *served, int64_t round);
/* Calls push() as long as the servers expect a push of this worker; a failure of push() fails
 * all ranks. */
rp_status rpi_served_work(rpi_served *served, rp_status (*push)(void *context), void *context);
/* Learns from this worker's part of the next step. */
rp_status rpi_served_learn(rpi_served *served, rpi_strategy_part *out_part);
/* Clips the gradients by the norm of the worker's own mean. share: of their batch. */
void rpi_served_clip(const rpi_served *served, double share);
/* Sends the gradient arena and receives the parameters. learnt: sums over the steps since the
 * last push. autocorrelation NaN: none. */
rp_status rpi_served_push(rpi_served *served, double weight, const rpi_strategy_part *learnt,
                          double autocorrelation);
/* Within a merge: rank 0 reports a round when its pushes are there. */
rp_status rpi_served_account(rpi_served *served, const rp_parameter_merge *merge);
/* Afterwards every rank has the parameters. Collective. */
rp_status rpi_served_end(rpi_served *served);
/* As rpi_strategy.confirm. */
rp_status rpi_served_confirm(rpi_served *served, rp_status status, bool *out_again,
                             rp_comm **out_comm);
/* As the functions of these names in rpi_strategy. */
rp_status rpi_served_grow(rpi_served *served, rp_comm *comm);
void rpi_served_settle(rpi_served *served, bool grows);

#endif
