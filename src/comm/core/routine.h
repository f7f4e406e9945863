/* A schedule made ready to run: encodings fused with their sends, receives listed by peer.
 *
 * What is changed, so that fewer bytes are touched:
 *  - An ENCODE whose wire slot is read by one SEND and nothing else becomes part of the SEND:
 *    the encoder then writes into the region that the link lends.
 *  - An ENCODE whose source is not overwritten afterwards records that source, so that exact
 *    parts need no wire slot at all: every SEND encodes from the source (see part_codec.c).
 *  - A sum of two that is exact needs no accumulator (see rpi_routine_fold()). */
#ifndef RPI_COMM_ROUTINE_H
#define RPI_COMM_ROUTINE_H

#include "plan/plan.h"

#include <stdint.h>

enum { RPI_NO_SLOT = 0xffff };

typedef struct rpi_action {
    uint8_t kind;  /* rpi_step_kind */
    uint8_t role;  /* of the encoding */
    uint8_t level; /* of the bytes that it makes, reads or moves */
    bool encodes;  /* a SEND with its ENCODE: `from` is then a slot of values */
    bool fused;    /* an ENCODE that became part of its SEND: never runs */
    uint16_t round;
    uint16_t from, into;
    uint16_t first; /* of an ADD that begins a sum: `into` = `first` + `from`; else NO_SLOT */
    uint16_t waits; /* actions that must finish first */
    int32_t part, peer;
    int32_t send; /* an ADD's: the only SEND of its sum, which it can do itself; -1: none */
    rpi_fraction weight;       /* of an ADD or COPY; with `first`: of the sum; zeros: one */
    int32_t first_next, nexts; /* in rpi_routine.next: actions that wait for this one */
} rpi_action;

typedef struct rpi_wire_plan {
    uint16_t readers; /* actions that read the slot */
    uint16_t source;  /* values slot that holds the same values to the end, or RPI_NO_SLOT */
    uint8_t role, level;
    bool stays; /* is never encoded: its ENCODE became part of an ADD (routine_fold.h) */
} rpi_wire_plan;

typedef struct rpi_routine {
    struct rpi_routine *sibling; /* in the communicator's cache */
    rpi_schedule schedule;
    int actions;        /* to finish in each chunk */
    int words;          /* of a bit set over the steps */
    rpi_action *action; /* [schedule.count] */
    int32_t *next;
    rpi_wire_plan *wires; /* [schedule.wires] */
    int32_t *recvs;       /* RECV actions, by peer, in order */
    int32_t *first_recv;  /* [world + 1] into recvs */
    int32_t *sum_of_part; /* [parts]: index of the part's accumulator, -1 for none */
    bool plain;           /* for requests whose bytes are their values */
    bool device;          /* for requests whose elements lie in memory of a GPU */
    bool inside;          /* some bytes are exact, for this host */
    int sums;             /* accumulators a chunk needs */
    int sources;          /* of a neighbourhood (neighborhood.h), and of what form */
    bool divides;
    struct rpi_chunk *idle; /* chunk states to use again */
} rpi_routine;

/* plain: all codecs are exact, and nothing is held back by error feedback. device: elements lie
 * in memory of a GPU, which encodes into pinned memory; no ENCODE is part of a SEND. */
rp_status rpi_routine_build(const rpi_algorithm *algorithm, const rpi_plan_request *request,
                            bool plain, bool device, rpi_routine **out_routine);
/* Its idle chunks are the caller's to free first. NULL is fine. */
void rpi_routine_destroy(rpi_routine *routine);

/* Of rpi_routine_build(): sums of two that need no accumulator (routine_fold.c).
 *
 * Where a part's sum begins with this rank's own values and one frame, the two steps become one
 * ADD that reads both (rpi_action.first). Where that is all of the sum, which is then sent and
 * kept, the ADD also takes over its mean and its way into OUT: `into` is then OUT, and what is
 * sent is read from there; only in requests whose bytes are their values: exact codecs, no
 * error feedback (rpi_routine.plain). stands_for[i]: the action that took step i over, or i
 * itself. */
rp_status rpi_routine_fold(rpi_routine *routine, int32_t *stands_for);

#endif
