/* `redpoll plan scaling`: the speed of more ranks, by strategy. */
#ifndef RPI_CLI_PLAN_SCALING_H
#define RPI_CLI_PLAN_SCALING_H

#include "plan/cost.h"
#include "plan/foresight/rank_scaling.h"
#include "redpoll/codec.h"

struct rpi_strategy; /* train/strategies/strategy.h */

enum {
    RPI_SCALING_RANKS = 32, /* the most numbers of ranks */
    RPI_SCALING_STRATEGIES = 12,
    RPI_SCALING_TEXT = 256,
    RPI_SCALING_WHY = 200
};

/* An exchange among so many ranks, and its links. */
typedef struct rpi_scaling_world {
    int ranks;
    rpi_plan_request request;
    rpi_cost_model model;
    size_t count, bucket_bytes; /* of the gradients: elements, and bytes of one sum */
    rp_codec codec;
    const char *algorithm; /* of all-reduces; NULL: as a run would choose */
    int ranks_per_host;
    rpi_scaling_work work;
} rpi_scaling_world;

/* A strategy that can be priced. */
typedef struct rpi_scaling_kind {
    const char *name; /* the name of the strategy in `redpoll train` */
    /* options: of the strategy, read into its struct. RP_INVALID: not among so many ranks. */
    rp_status (*price)(const rpi_scaling_world *world, const struct rpi_strategy *strategy,
                       const void *options, rpi_scaling_exchange *out);
} rpi_scaling_kind;
/* NULL past the end. */
const rpi_scaling_kind *rpi_scaling_kind_at(int index);
/* Finds by a strategy of `redpoll train`, which may have options after its name. RP_INVALID: it
 * has no price; the message says which have. */
rp_status rpi_scaling_kind_find(const char *strategy, const rpi_scaling_kind **out);

/* A strategy among so many ranks: what they exchange, and over which links. */
typedef struct rpi_scaling_job {
    const char *strategy, *codec; /* as in redpoll train */
    const char *algorithm;        /* of all-reduces; NULL: as a run would choose */
    int ranks, ranks_per_host;
    double count, bucket_bytes; /* of the gradients: elements, and bytes of one sum */
    rpi_scaling_work work;
    rpi_cost_model model;
} rpi_scaling_job;

/* A rank alone exchanges nothing. RP_INVALID, RP_UNSUPPORTED: not possible among so many ranks.
 */
rp_status rpi_scaling_price(const rpi_scaling_job *job, rpi_scaling_exchange *out);

typedef struct rpi_scaling_point {
    int ranks;
    rpi_scaling_exchange exchange;
    double step_s, exposed_s; /* NaN: not possible */
    double speedup;           /* in units of the work of one rank alone in the same time */
    double efficiency;        /* speedup for each rank */
    char why[RPI_SCALING_WHY];
} rpi_scaling_point;

typedef struct rpi_scaling_series {
    char text[RPI_SCALING_TEXT]; /* as the user wrote it */
    const rpi_scaling_kind *kind;
    const struct rpi_strategy *strategy;
    rpi_scaling_point points[RPI_SCALING_RANKS];
} rpi_scaling_series;

typedef struct rpi_scaling_plan {
    const char *model, *link, *local;
    char codec[64];
    double parameters, samples; /* samples: of a rank in a step; 0: not given */
    const char *source;         /* where the computing time comes from */
    rpi_scaling_work work;
    int64_t ranks_per_host;
    int ranks[RPI_SCALING_RANKS], rank_count, series_count;
    rpi_scaling_series series[RPI_SCALING_STRATEGIES];
} rpi_scaling_plan;

/* "1,2,4..128": `..` continues the two before it, by a factor if there is a whole one. */
rp_status rpi_scaling_ranks_parse(const char *text, int most, int out[RPI_SCALING_RANKS],
                                  int *out_count);

/* "gossip:topology=ring,local-sgd:every=20": adds series without points to the plan. */
rp_status rpi_scaling_strategies_parse(const char *text, rpi_scaling_plan *plan);

void rpi_scaling_print(const rpi_scaling_plan *plan);
void rpi_scaling_print_json(const rpi_scaling_plan *plan);
rp_status rpi_scaling_draw(const rpi_scaling_plan *plan, const char *path);

#endif
