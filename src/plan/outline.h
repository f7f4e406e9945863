/* What an algorithm costs in a closed form: counts of latencies, frames and bytes, which a cost
 * model turns into seconds in no time. The choice (choose.h) is made by them; cost.h simulates
 * what they leave out. */
#ifndef RPI_PLAN_OUTLINE_H
#define RPI_PLAN_OUTLINE_H

#include "plan/cost.h"

/* The world as far as outlines look: hosts are taken to be as wide as the widest. */
typedef struct rpi_world_shape {
    int world;
    int hosts;
    int widest;   /* ranks of the host that has most */
    int leaving;  /* most ranks of one host whose next rank is on another */
    double turns; /* of all ranks, which share has its next rank on another host */
} rpi_world_shape;

/* Of one call. Bytes are in vectors; "between" and "inside" hosts. */
typedef struct rpi_outline {
    double rounds_between, rounds_inside; /* latencies, one after the other */
    double frames_between, frames_inside; /* a chunk: sent and received by the busiest rank */
    double host_bytes;                    /* out of, or into, the busiest host, encoded */
    double inside_bytes;                  /* sent inside a host by the busiest rank, encoded */
    double inside_values;                 /* and as they are */
    double worked;                        /* encoded, added, decoded by the busiest rank */
    int parts;                            /* of a chunk */
    double share; /* of the busiest rank's work that a rank has on average; 0: all */
} rpi_outline;

/* O(world). RP_NOMEM. */
rp_status rpi_world_shape_make(const rpi_plan_request *request, rpi_world_shape *out_scale);

/* Ranks for each core up to which they hand it to each other, by polling and yielding, faster
 * than they would wake each other: of 3, 4, 8 and 16 that were tried, the last did not. */
enum { RPI_OVERSUBSCRIBED = 8 };

/* cores 0: one for each rank. */
bool rpi_is_oversubscribed(long ranks, long cores);
/* Seconds. bytes and encoded as in rpi_plan_cost. Where ranks share cores, the work of all is
 * done in turns, and who has waited for a frame waits for his turn too. */
double rpi_outline_price(const rpi_outline *outline, const rpi_world_shape *shape, size_t bytes,
                         size_t encoded, const rpi_cost_model *model);

/* What several kinds have in common: `rounds` rounds in which every rank sends every other one
 * frame each, `vectors` in all. */
rpi_outline rpi_outline_all_pairs(const rpi_world_shape *shape, double rounds, double vectors);
/* `hops` hops round a ring, one part of `world` each. */
rpi_outline rpi_outline_ring(const rpi_world_shape *shape, double hops);
/* Everybody to one rank and back: 2 (world - 1) frames, and no bytes yet. */
rpi_outline rpi_outline_star(const rpi_world_shape *shape);
int rpi_log2_up(int number); /* ceil */

#endif
