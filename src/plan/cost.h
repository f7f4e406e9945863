/* Price of a schedule: alpha-beta-gamma, by simulating all ranks and the chunks in flight.
 *
 * Each host has one network interface, which its ranks share, and each rank one core. The NIC
 * sends one frame at a time and receives one at a time, both at bytes_per_s; a frame's first
 * byte arrives latency_s after it left and its last no sooner than the NICs on both ends allow.
 * Between ranks of one host frames go by the inside_* numbers in place of that, and each rank
 * has a way out and a way in of its own. The core encodes, decodes, adds and
 * handles frames, one step at a time, of those that may start the first of the oldest chunk.
 * Where ranks share cores, a rank keeps one until it has nothing more to do there.
 * Links buffer without limit. A rank starts chunk c + chunks_in_flight when it has finished
 * chunk c. Parts are of equal size, and so are blocks. */
#ifndef RPI_PLAN_COST_H
#define RPI_PLAN_COST_H

#include "plan/plan.h"

typedef struct rpi_cost_model {
    double bytes_per_s; /* beta: each host's nic, each direction; 0: unlimited */
    double latency_s;   /* alpha: one frame, one way */
    double encode_bytes_s, decode_add_bytes_s; /* gamma: of elements, one core; 0: free */
    double frame_bytes;                        /* header and protocol bytes of each frame */
    double frame_s; /* of the core, for each frame sent and each received */
    double inside_bytes_per_s, inside_latency_s, inside_frame_s; /* between ranks of a host */
    /* A host's cores, 0: one for each rank; and how long it takes to hand one on to a rank that
     * has waited for it. */
    int cores;
    double turn_s;
    size_t chunk_bytes;   /* elements' bytes a chunk; 0: the default of split.h */
    int chunks_in_flight; /* 0: the default of split.h */
} rpi_cost_model;

typedef struct rpi_cost {
    double time_s;                     /* slowest rank */
    double wire_bytes;                 /* sent by the rank that sends most, to any */
    double host_bytes;                 /* sent through the NIC of the host that sends most */
    double wire_s, encode_s, decode_s; /* busy times of that rank; wire_s: sending to
                                          other hosts */
    int64_t frames;                    /* sent by that rank */
    int chunks;
} rpi_cost;

/* bytes: of elements: the vector of all-reduce, reduce, broadcast and send/recv; the `world`
 * parts together of reduce-scatter, all-gather, gather and scatter; the `world` blocks of one
 * rank, its own among them, of all-to-all. encoded: size of their encoding (bytes when exact).
 * Barrier takes neither. The rank of the request does not matter. Pure: the same arguments give
 * the same numbers on every rank. Long vectors are simulated for their first chunks and the
 * rest is taken to go on at that pace. Costs O(s log s) for s steps of all ranks: SRA among 8
 * ranks takes well under a millisecond, among 256 about a second. RP_INVALID: a rate or latency
 * that is negative or no number. RP_UNSUPPORTED: more than 4096 ranks or 32 million steps (SRA
 * among 2,100 ranks). Else as rpi_schedule_build. */
rp_status rpi_plan_cost(const rpi_algorithm *algorithm, const rpi_plan_request *request,
                        size_t bytes, size_t encoded, const rpi_cost_model *model,
                        rpi_cost *out_cost);

#endif
