/* Price of a schedule: alpha-beta-gamma, by simulating all ranks and the chunks in flight. */
#ifndef RPI_PLAN_COST_H
#define RPI_PLAN_COST_H

#include "plan/plan.h"

typedef struct rpi_cost_model {
    double bytes_per_s;   /* beta: each rank's link, each direction; 0: unlimited */
    double latency_s;     /* alpha: one frame, one way */
    double encode_bytes_s, decode_add_bytes_s; /* gamma: of elements, one core; 0: free */
    double frame_bytes;   /* header and protocol bytes of each frame */
    size_t chunk_bytes;   /* elements' bytes a chunk; 0: the executor's default */
    int chunks_in_flight; /* 0: the executor's default */
} rpi_cost_model;

typedef struct rpi_cost {
    double time_s;       /* slowest rank */
    double wire_bytes;   /* sent by the rank that sends most */
    double wire_s, encode_s, decode_s; /* busy times of that rank */
    int frames;
} rpi_cost;

/* bytes: size of the vector; encoded: size of its encoding (bytes when exact). */
rp_status rpi_plan_cost(const rpi_algorithm *algorithm, int world, size_t bytes, size_t encoded,
                        const rpi_cost_model *model, rpi_cost *out_cost);

#endif
