/* Schedules as data: what each rank does in a collective, step by step.
 *
 * An algorithm is a pure function (world, rank, root, hosts) -> schedule. A schedule moves
 * `parts`: the vector is cut into schedule->parts parts at codec granules (by whoever runs it:
 * plan knows no counts), and a long vector is cut into chunks first, each of which runs one
 * instance of the same schedule; several instances are in flight at once.
 *
 * Slots are what steps read and write, each addressed by part:
 *   RPI_SLOT_IN   the caller's input elements (read only)
 *   RPI_SLOT_OUT  the caller's output elements; the same memory as IN for in-place calls, so
 *                 no step may read part p of IN after a step wrote part p of OUT
 *   RPI_SLOT_SUM  accumulators: f32 for f32, f16, bf16 data, else the dtype of the data
 *   RPI_SLOT_WIRE + k   encoded bytes, k < schedule->wires
 * A wire slot holds one part in its lifetime and is written once in a schedule.
 *
 * Order: a step may start when every earlier step of its schedule that touches the same
 * (slot, part) has finished; steps without common slots may run in any order and at once.
 * Frames between two ranks arrive in the order of the SEND steps and match the RECV steps of
 * the receiver in their order: the k-th SEND to a peer meets that peer's k-th RECV from us.
 */
#ifndef RPI_PLAN_PLAN_H
#define RPI_PLAN_PLAN_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum rpi_collective {
    RPI_ALL_REDUCE,
    RPI_REDUCE_SCATTER, /* IN: world parts; OUT: part `rank` */
    RPI_ALL_GATHER,     /* IN: part `rank`; OUT: world parts */
    RPI_BROADCAST,      /* IN of root -> OUT of all */
    RPI_BARRIER,        /* one empty part */
    RPI_SENDRECV,       /* rank `rank` = 0 sends to 1 in a world of two; a frame "ready" first */
    RPI_COLLECTIVES
} rpi_collective;

typedef enum rpi_step_kind {
    RPI_STEP_ENCODE, /* values `from` -> bytes `into` (a wire slot); encoding is of role `role` */
    RPI_STEP_SEND,   /* bytes `from` (a wire slot) -> peer */
    RPI_STEP_RECV,   /* from peer -> bytes `into` (a wire slot) */
    RPI_STEP_DECODE, /* bytes `from` -> values `into` (overwrites) */
    RPI_STEP_ADD,    /* `into` (SUM) += `from`: bytes of a wire slot, or values of IN */
    RPI_STEP_COPY,   /* values `from` -> values `into`, converting between IN/OUT and SUM; into
                        OUT from SUM applies the division of a mean */
} rpi_step_kind;

enum { RPI_SLOT_IN, RPI_SLOT_OUT, RPI_SLOT_SUM, RPI_SLOT_WIRE };

/* Whose error feedback and randomness an ENCODE uses (DESIGN: "both quantisations covered"). */
enum { RPI_ROLE_SENDER = 0, RPI_ROLE_OWNER = 1 };

typedef struct rpi_step {
    uint8_t kind;
    uint8_t role;
    uint16_t round; /* for printing and for phases in errors; not an order */
    uint16_t from, into;
    int32_t part;
    int32_t peer; /* SEND and RECV; else -1 */
} rpi_step;

typedef struct rpi_schedule {
    const struct rpi_algorithm *algorithm;
    int world, rank, root;
    int parts;
    int wires;  /* wire slots used */
    int rounds;
    int count;  /* steps */
    bool uses_sum;
    rpi_step *steps; /* owned */
} rpi_schedule;

typedef struct rpi_plan_request {
    int world, rank;
    int root;            /* broadcast only */
    const int *host_of;  /* world entries: which host a rank is on; NULL: unknown */
} rpi_plan_request;

/* The contract of an algorithm kind; algorithms.c is the catalogue. */
typedef struct rpi_algorithm {
    const char *name;    /* "ring", "sra" */
    const char *summary; /* one line */
    rpi_collective collective;
    int quantisations;   /* worst number of lossy encodings an element passes; -1: grows with world */
    bool rank_order;     /* sums in rank order, independent of how parts are cut */
    bool (*fits)(int world);
    rp_status (*build)(const rpi_plan_request *request, rpi_schedule *out_schedule);
} rpi_algorithm;

/* Catalogue. NULL past the end / when there is none such. */
const rpi_algorithm *rpi_algorithm_at(int index);
/* RP_NOT_FOUND with the names of this collective's algorithms, and the nearest. */
rp_status rpi_algorithm_find(rpi_collective collective, const char *name,
                             const rpi_algorithm **out_algorithm);
const char *rpi_collective_name(rpi_collective collective); /* "all-reduce" ... */

/* Build and check the shape of one rank's schedule; destroy it with rpi_schedule_destroy. */
rp_status rpi_schedule_build(const rpi_algorithm *algorithm, const rpi_plan_request *request,
                             rpi_schedule *out_schedule);
void rpi_schedule_destroy(rpi_schedule *schedule); /* NULL and zeros are fine */

#endif
