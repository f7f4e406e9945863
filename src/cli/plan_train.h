/* `redpoll plan train`: what a training takes before it is paid for. */
#ifndef RPI_CLI_PLAN_TRAIN_H
#define RPI_CLI_PLAN_TRAIN_H

#include "cli/plan_spot_said.h"
#include "cli/plan_training.h"
#include "plan/foresight/failures.h"

enum { RPI_TRAIN_NAME = 32, RPI_TRAIN_OFFERS = 16 };

/* What a whole training comes to on spot nodes, by a trace of them, in one way to train. */
typedef struct rpi_train_spot_way {
    const char *name;
    double interval_s;            /* of work between two saves */
    rpi_spot_finish finish;       /* of all of its work */
    double low_hours, high_hours; /* 9 of 10 times */
    double hours, node_hours;     /* the latter of all nodes that are paid for meanwhile */
    double goodput;               /* work over time, of hosts that are never taken back */
    double cost, pays_below;      /* of a node and hour, of one that is taken back; negative:
                                     not known */
} rpi_train_spot_way;
enum { RPI_TRAIN_SPOT_WAYS = 2 };
typedef struct rpi_train_spot {
    rpi_train_spot_way ways[RPI_TRAIN_SPOT_WAYS]; /* one that restarts, and an elastic one */
    int chosen;
    double trace_hours, work_hours; /* on hosts that are never taken back */
    double price, spot_price;       /* negative: not said */
    bool notice_fits;
} rpi_train_spot;

/* What a whole training comes to; tokens 0: not asked for. */
typedef struct rpi_train_bill {
    double tokens, hours, low_hours, high_hours; /* failures and saves included */
    double price, cost;                          /* of a node and hour; negative: not said */
    double node_hours, kwh;                      /* kwh 0: watts are not known */
    double device_hours;                         /* of nodes at work */
    bool has_failures;
    rpi_failure_account failures; /* of the training, at the best interval */
    double stop_every_s;
    bool has_spot; /* what is above is then that of the chosen way */
    rpi_train_spot spot;
} rpi_train_bill;

/* One training: as it was said, and the layouts that were found. */
typedef struct rpi_train_offer {
    char name[RPI_TRAIN_NAME]; /* "" of the first */
    rpi_plan_training said;
    rpi_planned_training planned;
    rpi_found_layouts found;
    rpi_train_bill bill;
    double codec_pays_below; /* rpi_train_codec_pays_below() */
} rpi_train_offer;

/* The same training on so many hosts. */
typedef struct rpi_train_row {
    int offer; /* which of them */
    int64_t hosts;
    rpi_training_layout layout; /* the fastest that fits */
    double hours, high_hours, cost, tokens_per_s;
    bool meets; /* the limit */
} rpi_train_row;

enum { RPI_TRAIN_ROWS = 256 };
typedef struct rpi_train_goal {
    bool is_asked, is_budget;
    double limit; /* hours; or money, where it is a budget */
    rpi_train_row rows[RPI_TRAIN_ROWS];
    int count;
    int best; /* the cheapest in time, the fastest in money; -1: nothing meets the limit */
} rpi_train_goal;

/* ---- plan_train_goal.c ---- */

/* Plans offer `index` on so many hosts, at most as many as it was said to have; freed by the
 * caller. RP_INVALID: that cannot be, or does not fit. */
typedef rp_status (*rpi_train_planner)(void *context, int index, int64_t hosts,
                                       rpi_train_offer *out);
/* The next number of hosts to look at, up to `most`. */
int64_t rpi_train_more_hosts(int64_t hosts, int64_t most);
/* Rows for 1 host up to all, of each offer, and the best of them. */
rp_status rpi_train_goal_find(rpi_train_planner plan, void (*close)(rpi_train_offer *offer),
                              void *context, const rpi_train_offer *offers, int count,
                              rpi_train_goal *in_out);

/* The rate of a host's link, bytes a second, below which a step by the best layout is shorter
 * with the codec that was said (q4 where none was) than without: solved, to a thousandth. 0: at
 * none; infinity: at every one. Negative: nothing goes between hosts. */
rp_status rpi_train_codec_pays_below(const rpi_train_offer *offer, double *out_bytes_per_s);
const char *rpi_train_codec_of(const rpi_train_offer *offer);

/* ---- plan_train_bill.c ---- */

/* What was said of the whole training, as the user wrote it. */
typedef struct rpi_train_whole {
    const char *price, *tokens, *failures, *save, *restart, *spot;
    rpi_spot_said spot_said;
    bool elastic, pay_spares;
} rpi_train_whole;

/* "2T", "300B", "5e11". RP_INVALID: that is no number of tokens. */
rp_status rpi_train_tokens(const char *text, double *out);
/* RP_INVALID: words of a whole training (`goal`, too, where it is not NULL) without its tokens,
 * or words of spot nodes without their trace. */
rp_status rpi_train_whole_check(const rpi_train_whole *whole, const char *goal, int64_t hosts);
/* Fills the bill of the offer, by the best layout that was found. */
rp_status rpi_train_bill_make(const rpi_train_whole *whole, rpi_train_offer *in_out);

/* ---- plan_train_frontier.c ---- */

/* A layout, and what a training comes to by it. */
typedef struct rpi_train_choice {
    int offer; /* which of them */
    int64_t hosts;
    rpi_candidate candidate;
    double hours, high_hours, cost; /* hours 0, cost negative: not known */
} rpi_train_choice;
/* Those that no other beats: none is as fast, as cheap, and with as little memory. Where one
 * has no price, hosts are as many as were said, and time and memory are all that counts. */
typedef struct rpi_train_frontier {
    bool is_asked, has_price;
    rpi_train_choice *choices; /* fastest first; rpi_free() */
    int count;
} rpi_train_frontier;

/* `plan` finds the layouts of so many hosts that no other on them beats; `wholes` has what was
 * said of each offer's training. */
rp_status rpi_train_frontier_find(rpi_train_planner plan, void (*close)(rpi_train_offer *offer),
                                  void *context, const rpi_train_whole *const *wholes,
                                  const rpi_train_offer *offers, int count,
                                  rpi_train_frontier *in_out);

/* ---- plan_train_spot.c ---- */

/* What was said of spot nodes. */
typedef struct rpi_train_spot_said {
    const char *trace;
    bool is_elastic, pays_spares;
    rpi_spot_said words;
    double save_s, restart_s, work_s; /* work: of all hosts */
    double price, spot_price;
} rpi_train_spot_said;

/* Plans by the best layout of the offer. Fewer hosts share it as long as they can hold it, with
 * fewer replicas and about as large a batch. RP_INVALID: the training is never done. */
rp_status rpi_train_spot_plan(const rpi_train_offer *offer, const rpi_train_spot_said *said,
                              rpi_train_spot *out);
void rpi_train_spot_print(const rpi_train_spot *spot);

/* ---- plan_train_fit.c ---- */

/* RP_INVALID: none of its layouts fits; the largest item of the smallest, what makes that
 * smaller, and on how many more hosts one would. */
rp_status rpi_train_refuse_unfit(const rpi_train_offer *offer);

/* ---- printing ---- */

void rpi_train_offers_print(const rpi_train_offer *offers, int count, bool explain);
void rpi_train_offers_print_json(const rpi_train_offer *offers, int count,
                                 const rpi_train_goal *goal,
                                 const rpi_train_frontier *frontier);
void rpi_train_frontier_print(const rpi_train_offer *offers,
                              const rpi_train_frontier *frontier);
void rpi_train_goal_print(const rpi_train_offer *offers, const rpi_train_goal *goal);
/* Every fact and term of the best layout, with formula and source. */
void rpi_train_explain(const rpi_train_offer *offer);

#endif
