/* Frames both ways through memory that two sides share: threads (inproc.c) or processes
 * (shm.c). Lock-free, one sender and one receiver each way.
 *
 *     memory:  | end of side 0 | end of side 1 | frames of side 0 | frames of side 1 |
 *
 * A sender lays frames into its own frame area and commits a word for each: where and how long.
 * Words carry the parity of the lap, so that the receiver polls the very line that brings
 * the word. The receiver gives frames back in order by counting. What the other side wrote is
 * checked before it is used, and read once, but for the bit by which a frame is revoked. */
#ifndef RPI_NET_RING_PAIR_H
#define RPI_NET_RING_PAIR_H

#include "base/status.h"
#include "net/bytes/ring_allocator.h"
#include "net/memory/doorbell.h"

#include <stdatomic.h>

/* The fields that one side writes; on lines of their own, so that only changed lines move
 * between caches. */
typedef struct rpi_ring_pair_end {
    _Alignas(64) atomic_uint asleep; /* rpi_ring_pair_wish bits; also cleared by the waker */
    atomic_uint takes_places; /* 1: frames may name a place instead of having a payload */
    atomic_uint notes;        /* notes sent on the socket so far, so that the other
                               * side looks there */
    _Alignas(64) atomic_uint released; /* frames given back */
    atomic_uint writing;               /* 1: it writes into the payload of the frame that it
                                        * peeks at */
    _Alignas(64) atomic_uint_fast64_t posted[RPI_RING_REGIONS]; /* lap:1 revoked:1 place:1
                                                                  offset/64:29 bytes:32 */
} rpi_ring_pair_end;

typedef enum rpi_ring_pair_wish {
    RPI_WISH_FRAMES = 1,
    RPI_WISH_ROOM = 2,
    RPI_WISH_CLOSING = 4,
} rpi_ring_pair_wish;

typedef struct rpi_ring_pair {
    rpi_ring_pair_end *mine, *theirs;
    unsigned char *out, *in;
    size_t frame_bytes;
    int wake_fd;                 /* eventfd on which the other side sleeps; borrowed */
    int rank;                    /* this side's, by which it rings */
    rpi_doorbell_page *doorbell; /* of the other side; NULL: it has none. Borrowed */
    rpi_ring_region reserved;    /* bytes 0: nothing is */
    bool starved, bulk_starved;  /* the last reserve() found no room, and of which kind */
    uint32_t next;               /* frame to receive, counted since the beginning */
    rpi_ring_region held;        /* the frame that is peeked at; bytes 0: none */
    bool held_place;             /* it names a place */
    bool takes_places;
    bool has_places;     /* the number of committed frames that name one, */
    uint32_t place;      /* and this one last */
    uint32_t seen_first; /* frames that were released when we last slept */
    unsigned heard;      /* notes of the other side when last read */
    rpi_ring_allocator
        sent; /* committed and not released; the long ones, and the last of those */
} rpi_ring_pair;

size_t rpi_ring_pair_bytes(size_t frame_bytes);
/* side 0 or 1; memory starts zeroed, 64-byte aligned, of rpi_ring_pair_bytes(frame_bytes). */
void rpi_ring_pair_join(rpi_ring_pair *pair, void *memory, int side, size_t frame_bytes,
                        int wake_fd);
/* The other side has a doorbell (doorbell.h), which this side rings as `rank`: for every frame,
 * and for room if it is asked for. rpi_ring_pair_arm() is then only for links that the other
 * side's doorbell names, and for those of which rpi_ring_pair_asks() is true. */
void rpi_ring_pair_ring_at(rpi_ring_pair *pair, rpi_doorbell_page *doorbell, int rank);

/* As in the contract of a transport (transport.h). RP_CORRUPT: the other side's bookkeeping is
 * impossible. */
rp_status rpi_ring_pair_reserve(rpi_ring_pair *pair, size_t bytes, void **out_region);
/* The same for a frame that leaves room for others: RP_PENDING while the other side has two
 * long ones. */
rp_status rpi_ring_pair_reserve_bulk(rpi_ring_pair *pair, size_t bytes, void **out_region);
/* The last call of either found no room. */
static inline bool rpi_ring_pair_is_starved(const rpi_ring_pair *pair) {
    return pair->starved || pair->bulk_starved;
}
rp_status rpi_ring_pair_commit(rpi_ring_pair *pair, size_t bytes);
rp_status rpi_ring_pair_peek(rpi_ring_pair *pair, const void **out_frame, size_t *out_bytes);
void rpi_ring_pair_release(rpi_ring_pair *pair);

/* Frames that name the place of their payload (transport.h, rpi_zero_copy). Only an end that
 * has declared it takes them: RP_CORRUPT otherwise. */
void rpi_ring_pair_take_places(rpi_ring_pair *pair);
bool rpi_ring_pair_may_name_places(const rpi_ring_pair *pair); /* the other side takes them */
rp_status rpi_ring_pair_commit_place(rpi_ring_pair *pair, size_t bytes, uint32_t *out_number);
rp_status rpi_ring_pair_is_completed(rpi_ring_pair *pair,
                                     uint32_t number); /* RP_PENDING: not yet */
/* RP_PENDING: the other side is writing there; is_writing_to() tells for how long. */
rp_status rpi_ring_pair_revoke(rpi_ring_pair *pair, uint32_t number);
bool rpi_ring_pair_is_writing_to(rpi_ring_pair *pair, uint32_t number);
bool rpi_ring_pair_begin_write(rpi_ring_pair *pair); /* false: revoked */
void rpi_ring_pair_end_write(rpi_ring_pair *pair);
bool rpi_ring_pair_is_valid(const rpi_ring_pair *pair); /* the frame peeked at */

/* The number of notes that this side has sent in all over the socket that joins the two; and
 * whether the other has sent some since last asked. It is only a hint: the socket counts. */
void rpi_ring_pair_note(rpi_ring_pair *pair, unsigned notes);
bool rpi_ring_pair_has_notes(rpi_ring_pair *pair);

/* From now on the other side writes our eventfd if something happens; true: something has
 * already. */
bool rpi_ring_pair_arm(rpi_ring_pair *pair);
/* Whether this side has a frame that it has not released, or waits for room or for a payload.
 */
bool rpi_ring_pair_asks(const rpi_ring_pair *pair);
void rpi_ring_pair_disarm(rpi_ring_pair *pair);
/* Tell a sleeping other side that we close. */
void rpi_ring_pair_wake(rpi_ring_pair *pair);

#endif
