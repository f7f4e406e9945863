/* `redpoll plan train`: the costs of a training before it is paid for. */
#ifndef RPI_CLI_PLAN_TRAIN_H
#define RPI_CLI_PLAN_TRAIN_H

#include "cli/plan_spot_said.h"
#include "cli/plan_training.h"
#include "plan/foresight/failures.h"

enum { RPI_TRAIN_NAME = 32, RPI_TRAIN_OFFERS = 16 };

/* The costs of a whole training on spot nodes, by a trace of them, in one way to train. */
typedef struct rpi_train_spot_way {
    const char *name;
    double interval_s;            /* work between two saves */
    rpi_spot_finish finish;       /* of all of its work */
    double low_hours, high_hours; /* 9 of 10 times */
    double hours, node_hours;     /* node_hours: of all nodes that are paid for meanwhile */
    double goodput; /* work over time, relative to hosts that are never taken back */
    /* pays_below: the price of a spot node and hour below which spot nodes are cheaper;
     * negative: unknown */
    double cost, pays_below;
} rpi_train_spot_way;
enum { RPI_TRAIN_SPOT_WAYS = 2 };
typedef struct rpi_train_spot {
    rpi_train_spot_way ways[RPI_TRAIN_SPOT_WAYS]; /* one way restarts, the other is elastic */
    int chosen;
    double trace_hours, work_hours; /* on hosts that are never taken back */
    double price, spot_price;       /* negative: not given */
    bool notice_fits;
} rpi_train_spot;

/* The costs of a whole training; tokens 0: not asked for. */
typedef struct rpi_train_bill {
    double tokens, hours, low_hours, high_hours; /* with failures and saves */
    double price, cost;                          /* of a node and hour; negative: not given */
    double node_hours, kwh;                      /* kwh 0: the watts are unknown */
    double device_hours;                         /* of working nodes */
    bool has_failures;
    rpi_failure_account failures; /* of the training, with the best interval */
    double stop_every_s;
    bool has_spot; /* the fields above are then those of the chosen way */
    rpi_train_spot spot;
} rpi_train_bill;

/* One training: as it was given, and the layouts that were found. */
typedef struct rpi_train_offer {
    char name[RPI_TRAIN_NAME]; /* "" for the first */
    rpi_plan_training said;
    rpi_planned_training planned;
    rpi_found_layouts found;
    rpi_train_bill bill;
    double codec_pays_below; /* rpi_train_codec_pays_below() */
} rpi_train_offer;

/* The same training on a number of hosts. */
typedef struct rpi_train_row {
    int offer; /* which offer */
    int64_t hosts;
    rpi_training_layout layout; /* the fastest that fits */
    double hours, high_hours, cost, tokens_per_s;
    bool meets; /* it meets the limit */
} rpi_train_row;

enum { RPI_TRAIN_ROWS = 256 };
typedef struct rpi_train_goal {
    bool is_asked, is_budget;
    double limit; /* hours; or money for a budget */
    rpi_train_row rows[RPI_TRAIN_ROWS];
    int count;
    /* the cheapest within the time, or the fastest within the money; -1: nothing meets the
     * limit */
    int best;
} rpi_train_goal;

/* ---- plan_train_goal.c ---- */

/* Plans offer `index` on so many hosts, at most as many as it has; the caller frees it.
 * RP_INVALID: not possible, or it does not fit. */
typedef rp_status (*rpi_train_planner)(void *context, int index, int64_t hosts,
                                       rpi_train_offer *out);
/* The next number of hosts to try, up to `most`. */
int64_t rpi_train_more_hosts(int64_t hosts, int64_t most);
/* Rows for 1 host up to all, for each offer, and the best of them. */
rp_status rpi_train_goal_find(rpi_train_planner plan, void (*close)(rpi_train_offer *offer),
                              void *context, const rpi_train_offer *offers, int count,
                              rpi_train_goal *in_out);

/* The rate of a host's link, in bytes a second, below which a step by the best layout is
 * shorter with the given codec (q4 if none was given) than without, to a thousandth. 0: at
 * none; infinity: at every one. Negative: nothing is sent between hosts. */
rp_status rpi_train_codec_pays_below(const rpi_train_offer *offer, double *out_bytes_per_s);
const char *rpi_train_codec_of(const rpi_train_offer *offer);

/* ---- plan_train_bill.c ---- */

/* What the user says about the whole training. */
typedef struct rpi_train_whole {
    const char *price, *tokens, *failures, *save, *restart, *spot;
    rpi_spot_said spot_said;
    bool elastic, pay_spares;
} rpi_train_whole;

/* "2T", "300B", "5e11". RP_INVALID: it is not a number of tokens. */
rp_status rpi_train_tokens(const char *text, double *out);
/* RP_INVALID: options of a whole training (`goal`, too, if it is not NULL) without its tokens,
 * or options of spot nodes without their trace. */
rp_status rpi_train_whole_check(const rpi_train_whole *whole, const char *goal, int64_t hosts);
/* Fills the offer's bill, for the best layout that was found. */
rp_status rpi_train_bill_make(const rpi_train_whole *whole, rpi_train_offer *in_out);

/* ---- plan_train_frontier.c ---- */

/* A layout, and the costs of a training with it. */
typedef struct rpi_train_choice {
    int offer; /* which offer */
    int64_t hosts;
    rpi_candidate candidate;
    double hours, high_hours, cost; /* hours 0, cost negative: unknown */
} rpi_train_choice;
/* Layouts that no other beats: none is as fast, as cheap, and with as little memory. If an
 * offer has no price, the number of hosts is the given one, and only time and memory count. */
typedef struct rpi_train_frontier {
    bool is_asked, has_price;
    rpi_train_choice *choices; /* fastest first; rpi_free() */
    int count;
} rpi_train_frontier;

/* `plan` finds the layouts on so many hosts that no other on them beats; `wholes` has what was
 * given for each offer's training. */
rp_status rpi_train_frontier_find(rpi_train_planner plan, void (*close)(rpi_train_offer *offer),
                                  void *context, const rpi_train_whole *const *wholes,
                                  const rpi_train_offer *offers, int count,
                                  rpi_train_frontier *in_out);

/* ---- plan_train_spot.c ---- */

/* What the user says about spot nodes. */
typedef struct rpi_train_spot_said {
    const char *trace;
    bool is_elastic, pays_spares;
    rpi_spot_said words;
    double save_s, restart_s, work_s; /* work: of all hosts */
    double price, spot_price;
} rpi_train_spot_said;

/* Plans with the best layout of the offer. Fewer hosts share it as long as they can hold it,
 * with fewer replicas and about as large a batch. RP_INVALID: the training is never done. */
rp_status rpi_train_spot_plan(const rpi_train_offer *offer, const rpi_train_spot_said *said,
                              rpi_train_spot *out);
void rpi_train_spot_print(const rpi_train_spot *spot);

/* ---- plan_train_fit.c ---- */

/* RP_INVALID: none of its layouts fits; the message has the largest item of the smallest
 * layout, how to make it smaller, and on how many more hosts a layout would fit. */
rp_status rpi_train_refuse_unfit(const rpi_train_offer *offer);

/* ---- printing ---- */

void rpi_train_offers_print(const rpi_train_offer *offers, int count, bool explain);
void rpi_train_offers_print_json(const rpi_train_offer *offers, int count,
                                 const rpi_train_goal *goal,
                                 const rpi_train_frontier *frontier);
void rpi_train_frontier_print(const rpi_train_offer *offers,
                              const rpi_train_frontier *frontier);
void rpi_train_goal_print(const rpi_train_offer *offers, const rpi_train_goal *goal);
/* Prints every fact and term of the best layout, with formula and source. */
void rpi_train_explain(const rpi_train_offer *offer);

#endif
