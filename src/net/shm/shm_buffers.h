/* Which buffers (net/memory/buffers.h) the two ends of a link of shared memory see of each
 * other.
 *
 *      the owner                                        the peer
 *      unknown
 *        | something in it is to be sent
 *        |---- OFFER, with the memory's descriptor ---->  checks seals and size, maps it
 *      offered: payloads are copied                       |
 *        | <------------------------- ACCEPT, REFUSE -----|
 *        |                                                v
 *      accepted: payloads in it are named by place     mapped
 *        | rp_buffer_free()                               |
 *        |---- DROP ------------------------------------> |
 *      unknown                                         unmapped, once no frame that is held
 *                                                      lies in it
 *
 * These words are notes on the link's socket; what names a place is a frame in the link. An
 * owner's id is used once, so that a place in a buffer that was freed is never one in another.
 * Notes that find no room are sent later, or not at all: then payloads are copied. */
#ifndef RPI_NET_SHM_BUFFERS_H
#define RPI_NET_SHM_BUFFERS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RPI_SHM_BUFFERS = 64 }; /* the most buffers of one end that the other maps */

/* In a frame, after its header, instead of the payload. */
typedef struct rpi_shm_place {
    uint64_t buffer, offset; /* 0 when it was written */
    uint32_t bytes;
    uint32_t flags;
} rpi_shm_place;
enum {
    RPI_SHM_WRITABLE = 1, /* the receiver may write its answer there */
    RPI_SHM_WRITTEN = 2,  /* and this is such an answer */
};

typedef struct rpi_shm_note {
    uint32_t magic, word; /* rpi_shm_word */
    uint64_t buffer, bytes;
} rpi_shm_note;

#define RPI_SHM_NOTE_MAGIC UINT32_C(0x424c5052) /* "RPLB" */
typedef enum rpi_shm_word {
    RPI_SHM_OFFER = 1, /* bytes: of the buffer */
    RPI_SHM_ACCEPT,
    RPI_SHM_REFUSE,
    RPI_SHM_DROP,
} rpi_shm_word;

typedef struct rpi_shm_mine {
    uint64_t id;
    bool accepted;
} rpi_shm_mine;

typedef struct rpi_shm_theirs {
    uint64_t id;
    unsigned char *memory;
    size_t bytes;
    bool dropped; /* to be unmapped when no frame uses it */
} rpi_shm_theirs;

typedef struct rpi_shm_buffers {
    int mine_count, theirs_count;
    rpi_shm_mine *mine;     /* [RPI_SHM_BUFFERS], allocated when needed */
    rpi_shm_theirs *theirs; /* the same */
    unsigned freed;         /* rpi_buffers_freed() when DROPs were last sent */
    unsigned pause;         /* number of reaches() in which no buffer is offered: there was no
                             * room to send an offer */
    unsigned said;          /* notes so far */
    uint64_t held;          /* the peer's buffer in which a frame is being read; 0: none */
} rpi_shm_buffers;

void rpi_shm_buffers_close(rpi_shm_buffers *buffers);
/* True: the peer can read this memory; otherwise it may be able to later. */
bool rpi_shm_buffers_reach(rpi_shm_buffers *buffers, int socket, const void *data, size_t bytes,
                           rpi_shm_place *out_place);
/* Read notes that have arrived. RP_PENDING: there are no more; RP_OK: there may be; RP_PEER:
 * the socket's end; RP_CORRUPT: not notes. */
rp_status rpi_shm_buffers_receive(rpi_shm_buffers *buffers, int socket);
/* The address of a place of the peer's, held until release. RP_PENDING: its buffer is not
 * mapped; RP_CORRUPT: it is not in its buffer. */
rp_status rpi_shm_buffers_hold(rpi_shm_buffers *buffers, const rpi_shm_place *place,
                               unsigned char **out_data);
void rpi_shm_buffers_release(rpi_shm_buffers *buffers);
/* Tell the peer of buffers that were freed since the last time; almost free if none was. False:
 * the socket has no room, and this has to be called again. */
bool rpi_shm_buffers_drop_freed(rpi_shm_buffers *buffers, int socket);

#endif
