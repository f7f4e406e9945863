/* A schedule made ready to run: encodings fused with their sends, receives listed by peer.
 *
 * What is changed, so that fewer bytes are touched:
 *  - An ENCODE whose encoded slot is read by one SEND and nothing else becomes part of the
 * SEND: the encoder then writes into the region that the link hands out.
 *  - An ENCODE whose source is not overwritten afterwards records that source, so that exact
 *    parts need no encoded slot at all: every SEND encodes from the source (see part_codec.c).
 *  - A sum of two that is exact needs no accumulator (see rpi_compiled_fold()). */
#ifndef RPI_COMM_COMPILED_SCHEDULE_H
#define RPI_COMM_COMPILED_SCHEDULE_H

#include "plan/plan.h"

#include <stdint.h>

enum { RPI_NO_SLOT = 0xffff };

typedef struct rpi_instruction {
    uint8_t kind;  /* rpi_step_kind */
    uint8_t role;  /* of the encoding */
    uint8_t level; /* of the bytes that it makes, reads or moves */
    bool encodes;  /* a SEND with its ENCODE: `from` is then a slot of values */
    bool fused;    /* an ENCODE that became part of its SEND: never runs */
    uint16_t round;
    uint16_t from, into;
    uint16_t first; /* of an ADD that begins a sum: `into` = `first` + `from`; else NO_SLOT */
    uint16_t waits; /* instructions that must finish before it */
    int32_t part, peer;
    int32_t send; /* an ADD's: the only SEND of its sum, which it can do itself; -1: none */
    rpi_fraction weight; /* of an ADD or COPY; with `first`: of the sum; zeros: one */
    int32_t first_next,
        nexts; /* in rpi_compiled_schedule.next: instructions that wait for this one */
} rpi_instruction;

typedef struct rpi_encoded_plan {
    uint16_t readers; /* instructions that read the slot */
    uint16_t source;  /* slot with the same values to the end, or RPI_NO_SLOT */
    uint8_t role, level;
    bool stays; /* is never encoded: its ENCODE became part of an ADD (compiled_fold.c) */
} rpi_encoded_plan;

typedef struct rpi_compiled_schedule {
    struct rpi_compiled_schedule *sibling; /* in the communicator's cache */
    rpi_schedule schedule;
    int instructions;             /* to finish in each chunk */
    int words;                    /* of a bit set over the steps */
    rpi_instruction *instruction; /* [schedule.count] */
    int32_t *next;
    rpi_encoded_plan *encoded_slots; /* [schedule.encoded_slots] */
    int32_t *recvs;                  /* RECV instructions, by peer, in order */
    int32_t *first_recv;             /* [world + 1] into recvs */
    int32_t *sum_of_part;            /* [parts]: index of the part's accumulator, -1 for none */
    bool plain;                      /* for requests whose bytes are their values */
    bool device;                     /* for requests whose elements are in memory of a GPU */
    bool inside;                     /* some bytes are exact, for this host */
    int sums;                        /* accumulators a chunk needs */
    int sources;                     /* of a neighbourhood (neighborhood.h), and of what form */
    bool divides;
    struct rpi_chunk *idle; /* chunk states to use again */
} rpi_compiled_schedule;

/* plain: all codecs are exact, and there are no residuals. device: elements are in memory of a
 * GPU, which encodes into pinned memory; no ENCODE is part of a SEND. */
rp_status rpi_schedule_compile(const rpi_algorithm *algorithm, const rpi_plan_request *request,
                               bool plain, bool device, rpi_compiled_schedule **out_compiled);
/* The caller frees its idle chunks before. NULL is fine. */
void rpi_compiled_destroy(rpi_compiled_schedule *compiled);

/* For rpi_schedule_compile(): sums of two that need no accumulator (compiled_fold.c).
 *
 * If a part's sum begins with this rank's own values and one frame, the two steps become one
 * ADD that reads both (rpi_instruction.first). If that is the whole sum, which is then sent and
 * kept, the ADD also takes the mean and writes to OUT: `into` is then OUT, and the SEND reads
 * from there. This is only for requests whose bytes are their values: exact codecs, no error
 * feedback (rpi_compiled_schedule.plain). stands_for[i]: the instruction that replaces step i,
 * or i itself. */
rp_status rpi_compiled_fold(rpi_compiled_schedule *compiled, int32_t *stands_for);

#endif
