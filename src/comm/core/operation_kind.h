/* The contract of a kind of operation: how its requests are numbered, whose frames are theirs
 * and what ranks say to each other about them. Everything else is the same for all of them.
 *
 *     collective   all ranks, in one order                 collective_kind.c
 *     exchange     a rank and its neighbours, by rounds    exchange_protocol.c
 *     pair         a sender and a receiver, by tags        pair_protocol.c
 *
 * protocol/operation_kinds.c is the catalogue. Who has a request asks its `kind`, who has a
 * frame's number the communicator's table (rpi_operation_kind_of()); nobody compares either
 * with a kind by name.
 *
 * The top two bits of a number say its kind, so that frames need no other word for it:
 *
 *     0      operations of the communicator so far
 *     1      rounds of neighbours, counted by themselves: not all ranks take part in all
 *     2, 3   messages so far of a pair, a direction and a tag
 */
#ifndef RPI_COMM_OPERATION_KIND_H
#define RPI_COMM_OPERATION_KIND_H

#include "comm/core/compiled_schedule.h"
#include "net/bytes/frame.h"
#include "redpoll/comm.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPI_EXCHANGE_SEQUENCE (UINT64_C(1) << 62)
#define RPI_P2P_SEQUENCE      (UINT64_C(1) << 63)
#define RPI_P2P_UPWARD        (UINT64_C(1) << 62) /* from the lower rank to the higher */
#define RPI_P2P_TAG_SHIFT     31
#define RPI_P2P_NUMBERS       (UINT64_C(1) << 31)

enum { RPI_NUMBER_KIND_SHIFT = 62, RPI_NUMBER_KINDS = 4 };

/* What an operation moves, as far as its compiled schedule depends on it. */
typedef struct rpi_load {
    bool lossy;           /* some codec is */
    bool device;          /* elements are in memory of a GPU */
    bool plain;           /* bytes are values: nothing is lossy, and there are no residuals */
    size_t bytes;         /* of all elements */
    size_t granule_bytes; /* of the longest granule, as values */
} rpi_load;

struct rpi_chunk;

typedef struct rpi_operation_kind {
    const char *noun; /* "operation", before the number in messages; NULL: that says nothing */
    uint64_t first;   /* what such messages subtract from the number */

    bool takes_turns;     /* of those in a queue the first few move; else each independently */
    bool by_pair;         /* two ranks take part, and number it themselves */
    bool needs_cts;       /* frames may leave after its receiver has started, and CTS are
                           * requested */
    bool among_neighbors; /* only they have a part in it */
    bool chooses;         /* it has several algorithms, and callers may name one */
    size_t ahead_bytes;   /* of each payload, before its encodings: the weight of its edge */

    /* Makes one. Its collective, neighborhood or peer, partition and device are set. */
    rp_status (*compile)(rp_request *request, const char *algorithm,
                         const rpi_plan_request *plan, const rpi_load *load);
    rp_status (*number)(rp_request *request); /* [lock] sets its `sequence` */

    /* Ranks behind the peers of its schedule. A rank may be two peers: one that we receive from
     * and one that we send to; -1: it is not among these. */
    int (*rank_of)(const rp_request *request, int peer);
    int (*source)(const rp_request *request, int rank);
    int (*destination)(const rp_request *request, int rank);

    /* [progress] from here on, but for `name`. */
    void (*see)(const rp_request *request); /* it enters the queue */
    bool (*check_over)(
        rp_comm *comm); /* is over; frames of earlier ones are refused; or NULL */
    /* Before it moves its receiver is sent an RTS, if that needs one; or NULL. */
    void (*send_rts)(rp_request *request);
    /* Nothing has come from its other side, perhaps not for long; NULL: never. */
    bool (*is_alone)(const rp_request *request);
    /* Whether this rank waits for a vector of that one. If not, this is reported. NULL: of all.
     */
    bool (*expects)(rp_request *request, int rank);
    /* The frame of a SEND may leave; else RP_PENDING after a request for it. */
    bool (*has_cts)(const struct rpi_chunk *chunk, const rpi_instruction *instruction);
    rp_status (*await_cts)(rp_request *request, int rank, uint32_t chunk);

    /* For frames without a request here: is that request still to come? */
    bool (*is_future)(const rp_comm *comm, int rank, const rpi_frame_header *header);
    /* It is over, and no frame was expected: reported. */
    rp_status (*refuse)(rp_comm *comm, int rank, const rpi_frame_header *header);

    /* "all-reduce 5" */
    void (*name)(const rp_request *request, char *text, size_t bytes);
} rpi_operation_kind;

#endif
