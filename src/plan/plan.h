/* Schedules as data: what each rank does in a collective, step by step.
 *
 * An algorithm is a pure function (world, rank, root, mean, hosts) -> schedule. A schedule
 * moves `parts`: the vector is cut into schedule->parts parts at codec granules (by whoever
 * runs it: plan knows no counts), and a long vector is cut into chunks first, each of which
 * runs one instance of the same schedule; several instances are in flight at once.
 *
 * One word each:
 *   segment  elements that the caller named: a tensor, or a slice of one
 *   vector   all segments of a call, one behind the other
 *   chunk    a stretch of the vector that runs through the schedule by itself
 *   part     what a step names: chunk c has parts 0 ... schedule->parts - 1
 *   piece    the elements of one part of one chunk
 *   range    those elements of a piece that lie in one segment
 *   block    what one rank has for another in a gather, scatter or all-to-all: a part by itself
 *   border   a place where a segment may be cut (granules of its codec, cache lines)
 *   split    the pure arithmetic of all this (split.h); in comm a cut is a split of real memory
 *
 * Slots are what steps read and write, each addressed by part:
 *   RPI_SLOT_IN    the caller's input elements (read only)
 *   RPI_SLOT_OUT   the caller's output elements; the same memory as IN for in-place calls, so
 *                  no step may read part p of IN after a step wrote part p of OUT
 *   RPI_SLOT_SUM   accumulators: f32 for f32, f16, bf16 data, else the dtype of the data
 *   RPI_SLOT_RTR no bytes: a frame from here into there has no payload and says "I am here"
 *   RPI_SLOT_ENCODED + k encoded bytes, k < schedule->encoded_slots
 * An encoded slot holds one part in its lifetime and is written once in a schedule.
 *
 * Order: two steps that touch the same (slot, part), at least one of them writing, run in the
 * order of the schedule; IN and OUT count as one slot here, since they may be one memory, and
 * RTR as one slot whatever the part. Steps before a FENCE finish before steps behind it
 * start. SENDs to one peer run in their order, and so do RECVs from one peer. All else may run
 * in any order and at once. schedule->{waits,next_first,next} hold exactly these rules.
 *
 * Frames between two ranks arrive in the order of the SEND steps and match the RECV steps of
 * the receiver in their order: the k-th SEND to a peer meets that peer's k-th RECV from us.
 * Parts may be empty (fewer granules than parts); both ends know, so an executor may skip the
 * frames of empty parts, but never those of RTR.
 *
 * Weights: a COPY or an ADD multiplies what it reads by step->weight, a rational, on its way. A
 * SUM may be copied to itself so. The product is rounded, then the quotient (true division),
 * then the sum: nothing is fused.
 * A mean is one use of it: where the caller asked for one (request->mean), the algorithm writes
 * 1/world where a sum is finished, before it is encoded for everybody, because what is sent
 * must be what the owner keeps.
 *
 * Blocks (gather, scatter, all-to-all): how long a part is, only the two ranks know that send
 * and receive it. Each part is cut by itself into pieces of one fixed length, chunk c moves
 * piece c, and a rank runs as many chunks as its own longest part has pieces. SENDs and RECVs
 * of a piece that does not exist are left out but for those of chunk 0, through which ranks
 * notice that they disagree. Nothing is summed.
 */
#ifndef RPI_PLAN_PLAN_H
#define RPI_PLAN_PLAN_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef enum rpi_collective {
    RPI_ALL_REDUCE,
    RPI_REDUCE_SCATTER, /* IN: world parts; OUT: part `rank` */
    RPI_ALL_GATHER,     /* IN: part `rank`; OUT: world parts */
    RPI_BROADCAST,      /* IN of root -> OUT of all */
    RPI_BARRIER,        /* tokens only */
    RPI_SENDRECV,    /* IN of rank 0 -> OUT of rank 1 in a world of two; the receiver sends an
                        RTR first, so that no data blocks a link before it is wanted */
    RPI_REDUCE,      /* as ALL_REDUCE, but OUT is the root's alone */
    RPI_GATHER,      /* IN: part `rank`; OUT of root: world parts. Blocks, see above */
    RPI_SCATTER,     /* IN of root: world parts; OUT: part `rank`. Blocks */
    RPI_ALL_TO_ALL,  /* 2 * world parts. IN: part d < world is for the rank at distance d. OUT:
                        part 0 is the rank's own, part world + d comes from the rank d before,
                        part world is empty; what is sent as part d is received as part
                        world + d. Blocks */
    RPI_COLLECTIVES, /* those before are of the whole world, and one can be chosen unasked */
    /* Of neighbours alone: OUT: the row of the round's mixing (topologies/mixing.h) over IN */
    RPI_NEIGHBOUR_ALL_REDUCE = RPI_COLLECTIVES,
    RPI_COLLECTIVE_KINDS
} rpi_collective;

typedef enum rpi_step_kind {
    RPI_STEP_ENCODE, /* values `from` (IN, SUM) -> bytes `into` (an encoded slot), of role
                        `role`, by the codec of `level` */
    RPI_STEP_SEND,   /* bytes `from` (an encoded slot, RTR) -> peer */
    RPI_STEP_RECV,   /* from peer -> bytes `into` (an encoded slot, RTR) */
    RPI_STEP_DECODE, /* bytes `from` -> values `into` (OUT, SUM), overwriting */
    RPI_STEP_ADD,  /* `into` (SUM) += weight * `from`: bytes of an encoded slot, or values of IN
                    */
    RPI_STEP_COPY, /* values IN -> SUM, IN -> OUT, SUM -> OUT, converting, times weight;
                      SUM -> SUM with a weight */
    RPI_STEP_FENCE, /* orders the steps before it before those behind it */
    RPI_STEP_KINDS
} rpi_step_kind;

enum { RPI_SLOT_IN, RPI_SLOT_OUT, RPI_SLOT_SUM, RPI_SLOT_RTR, RPI_SLOT_ENCODED };

/* Whose error feedback and randomness an ENCODE uses: the contribution (or partial sum) on its
 * way to the owner, or the finished sum on its way to everybody. */
enum { RPI_ROLE_SENDER = 0, RPI_ROLE_OWNER = 1 };

/* times / over; zeros: one. With over 0 alone: number `times` - 1 of the weights that come with
 * a call, which whoever runs the schedule knows. */
typedef struct rpi_fraction {
    int32_t times, over;
} rpi_fraction;

static inline rpi_fraction rpi_weight_of_call(int index) {
    return (rpi_fraction){.times = index + 1};
}

static inline bool rpi_is_weight(rpi_fraction weight) {
    return weight.times || weight.over;
}

/* Which codec bytes are of: what the caller named goes between hosts, and also inside one where
 * an algorithm knows no hosts; inside a host an exact one can be had, without error feedback.
 */
enum { RPI_LEVEL_WORLD = 0, RPI_LEVEL_HOST = 1 };

typedef struct rpi_step {
    uint8_t kind;
    uint8_t role;        /* ENCODE; else 0 */
    uint8_t level;       /* ENCODE, and RECV into an encoded slot: of the bytes; else 0 */
    uint16_t round;      /* for printing and for phases in errors; not an order */
    uint16_t from, into; /* slots; the one a kind does not use is 0 */
    int32_t part;
    int32_t peer;        /* SEND and RECV; else -1 */
    rpi_fraction weight; /* ADD and COPY; else zeros */
} rpi_step;

typedef struct rpi_schedule {
    const struct rpi_algorithm *algorithm;
    int world, rank, root;
    int parts;
    int encoded_slots; /* encoded slots used */
    int rounds;
    int count;       /* steps */
    bool mean;       /* finished sums are divided by the world */
    rpi_step *steps; /* owned, as are the arrays below */
    /* The order above as a graph: step i may start when waits[i] steps have finished, and its
     * end counts for next[next_first[i]] ... next[next_first[i + 1] - 1]. */
    int *waits;      /* [count] */
    int *next_first; /* [count + 1] */
    int *next;
} rpi_schedule;

typedef struct rpi_plan_request {
    int world, rank;
    int root;           /* of collectives that have one; 0 for others */
    bool mean;          /* of collectives that reduce: the sum divided by the world */
    const int *host_of; /* world entries: which host a rank is on; NULL: each on its own */
    const struct rpi_mixing *mixing; /* who weighs whom, of NEIGHBOUR_ALL_REDUCE; else NULL */
} rpi_plan_request;

static inline bool rpi_same_host(const rpi_plan_request *request, int a, int b) {
    return request->host_of ? request->host_of[a] == request->host_of[b] : a == b;
}

struct rpi_world_shape;
struct rpi_outline;

/* The contract of an algorithm kind; algorithms.c is the catalogue. */
typedef struct rpi_algorithm {
    const char *name;    /* "ring", "sra" */
    const char *summary; /* one line */
    rpi_collective collective;
    int quantisations; /* worst number of lossy encodings an element passes; -1: grows with
                          world */
    bool exact;        /* refuses lossy codecs: encodes a part more than once, or replicas would
                          differ */
    bool knows_hosts;  /* what it does depends on host_of, and inside a host it is exact */
    bool for_crowds;   /* chosen only where ranks are many for each core (outline.h) */
    bool rank_order;   /* sums in rank order, independent of how parts are cut */
    bool (*fits)(const rpi_plan_request *request); /* the rank does not matter */
    rp_status (*build)(const rpi_plan_request *request, rpi_schedule *out_schedule);
    /* What it costs, in a closed form (outline.h). Optional where there is nothing to choose.
     */
    struct rpi_outline (*outline)(const struct rpi_world_shape *shape);
} rpi_algorithm;

/* Catalogue. NULL past the end / when there is none such. */
const rpi_algorithm *rpi_algorithm_at(int index);
/* RP_NOT_FOUND with the names of this collective's algorithms, and the nearest. */
rp_status rpi_algorithm_find(rpi_collective collective, const char *name,
                             const rpi_algorithm **out_algorithm);
const char *rpi_collective_name(rpi_collective collective); /* "all-reduce" ... */
/* Broadcast, reduce, gather, scatter. */
bool rpi_collective_has_root(rpi_collective collective);

const char *rpi_step_name(rpi_step_kind kind); /* "encode" ... */

/* Build one rank's schedule, check its shape (RP_INTERNAL) and fill in its order. RP_INVALID:
 * a world, rank or root out of range; RP_UNSUPPORTED: the algorithm does not fit the world.
 * *out_schedule is zeroed on failure; else destroy it with rpi_schedule_destroy. */
rp_status rpi_schedule_build(const rpi_algorithm *algorithm, const rpi_plan_request *request,
                             rpi_schedule *out_schedule);
/* Whether it does, of a request that is in range; else what rpi_schedule_build says. */
bool rpi_algorithm_fits(const rpi_algorithm *algorithm, int world);
void rpi_schedule_destroy(rpi_schedule *schedule); /* NULL and zeros are fine */

/* A table for people: the steps of one rank, round by round. */
void rpi_schedule_print(FILE *stream, const rpi_schedule *schedule);

#endif
