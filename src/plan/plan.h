/* Schedules as data: what each rank does in a collective, step by step.
 *
 * An algorithm is a pure function (world, rank, root, hosts) -> schedule. A schedule moves
 * `parts`: the vector is cut into schedule->parts parts at codec granules (by whoever runs it:
 * plan knows no counts), and a long vector is cut into chunks first, each of which runs one
 * instance of the same schedule; several instances are in flight at once.
 *
 * Slots are what steps read and write, each addressed by part:
 *   RPI_SLOT_IN    the caller's input elements (read only)
 *   RPI_SLOT_OUT   the caller's output elements; the same memory as IN for in-place calls, so
 *                  no step may read part p of IN after a step wrote part p of OUT
 *   RPI_SLOT_SUM   accumulators: f32 for f32, f16, bf16 data, else the dtype of the data
 *   RPI_SLOT_TOKEN no bytes: a frame from here into there has no payload and says "I am here"
 *   RPI_SLOT_WIRE + k   encoded bytes, k < schedule->wires
 * A wire slot holds one part in its lifetime and is written once in a schedule.
 *
 * Order: two steps that touch the same (slot, part), at least one of them writing, run in the
 * order of the schedule; IN and OUT count as one slot here, since they may be one memory, and
 * TOKEN as one slot whatever the part. Steps before a FENCE finish before steps behind it
 * start. SENDs to one peer run in their order, and so do RECVs from one peer. All else may run
 * in any order and at once. schedule->{waits,next_first,next} hold exactly these rules.
 *
 * Frames between two ranks arrive in the order of the SEND steps and match the RECV steps of
 * the receiver in their order: the k-th SEND to a peer meets that peer's k-th RECV from us.
 * Parts may be empty (fewer granules than parts); both ends know, so an executor may skip the
 * frames of empty parts, but never those of TOKEN.
 *
 * Blocks (gather, scatter, all-to-all): how long a part is, only the two ranks know that send
 * and receive it. Each part is cut by itself into pieces of one fixed length, chunk c moves
 * piece c, and a rank runs as many chunks as its own longest part has pieces. SENDs and RECVs
 * of a piece that does not exist are left out but for those of chunk 0, through which ranks
 * notice that they disagree. Nothing is summed.
 *
 * The mean: the sum is divided by the world before it is encoded for everybody, because what is
 * sent must be what the owner keeps. So exactly two kinds of steps divide, when the caller
 * asked for a mean, and a finished sum passes exactly one of them: an ENCODE of SUM with role
 * OWNER, and a COPY from SUM into OUT. After either the SUM is not read again, so that it may
 * be divided where it lies.
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
    RPI_SENDRECV,       /* IN of rank 0 -> OUT of rank 1 in a world of two; the receiver sends a
                           token first, so that no data blocks a link before it is wanted */
    RPI_REDUCE,         /* as ALL_REDUCE, but OUT is the root's alone */
    RPI_GATHER,         /* IN: part `rank`; OUT of root: world parts. Blocks, see above */
    RPI_SCATTER,        /* IN of root: world parts; OUT: part `rank`. Blocks */
    RPI_ALL_TO_ALL, /* 2 * world parts. IN: part d < world is for the rank at distance d. OUT:
                       part 0 is the rank's own, part world + d comes from the rank d before,
                       part world is empty; what is sent as part d is received as part
                       world + d. Blocks */
    RPI_COLLECTIVES
} rpi_collective;

typedef enum rpi_step_kind {
    RPI_STEP_ENCODE, /* values `from` (IN, SUM) -> bytes `into` (a wire slot), of role `role` */
    RPI_STEP_SEND,   /* bytes `from` (a wire slot, TOKEN) -> peer */
    RPI_STEP_RECV,   /* from peer -> bytes `into` (a wire slot, TOKEN) */
    RPI_STEP_DECODE, /* bytes `from` -> values `into` (OUT, SUM), overwriting */
    RPI_STEP_ADD,    /* `into` (SUM) += `from`: bytes of a wire slot, or values of IN */
    RPI_STEP_COPY,   /* values IN -> SUM, IN -> OUT, SUM -> OUT, converting */
    RPI_STEP_FENCE,  /* orders the steps before it before those behind it */
    RPI_STEP_KINDS
} rpi_step_kind;

enum { RPI_SLOT_IN, RPI_SLOT_OUT, RPI_SLOT_SUM, RPI_SLOT_TOKEN, RPI_SLOT_WIRE };

/* Whose error feedback and randomness an ENCODE uses: the contribution (or partial sum) on its
 * way to the owner, or the finished sum on its way to everybody. */
enum { RPI_ROLE_SENDER = 0, RPI_ROLE_OWNER = 1 };

typedef struct rpi_step {
    uint8_t kind;
    uint8_t role;        /* ENCODE; else 0 */
    uint16_t round;      /* for printing and for phases in errors; not an order */
    uint16_t from, into; /* slots; the one a kind does not use is 0 */
    int32_t part;
    int32_t peer; /* SEND and RECV; else -1 */
} rpi_step;

typedef struct rpi_schedule {
    const struct rpi_algorithm *algorithm;
    int world, rank, root;
    int parts;
    int wires; /* wire slots used */
    int rounds;
    int count; /* steps */
    bool uses_sum;
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
    const int *host_of; /* world entries: which host a rank is on; NULL: unknown */
} rpi_plan_request;

/* The contract of an algorithm kind; algorithms.c is the catalogue. */
typedef struct rpi_algorithm {
    const char *name;    /* "ring", "sra" */
    const char *summary; /* one line */
    rpi_collective collective;
    int quantisations; /* worst number of lossy encodings an element passes; -1: grows with
                          world */
    bool rank_order;   /* sums in rank order, independent of how parts are cut */
    bool (*fits)(int world);
    rp_status (*build)(const rpi_plan_request *request, rpi_schedule *out_schedule);
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
void rpi_schedule_destroy(rpi_schedule *schedule); /* NULL and zeros are fine */

/* A table for people: the steps of one rank, round by round. */
void rpi_schedule_print(FILE *stream, const rpi_schedule *schedule);

#endif
