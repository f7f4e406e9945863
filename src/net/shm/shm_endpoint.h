/* What the files of the shared memory transport share: shm.c, its endpoint; shm_connect.c, by
 * which two processes come to a link; shm_ready.c, which links are ready; shm_frames.c, frames
 * in and out; shm_zero_copy.c, payloads that stay in their buffers.
 *
 *     a link   NEW -- dial() --> CALLED -- hello said --> GREETED -- memory passed --> UP -->
 * GONE
 *               ^'-------- the other side calls, or a call is handed over ------------^
 *               '------------ it hung up, perhaps on too many callers --'
 *
 * A link that is GONE has no peer any more: what that had committed is still read. */
#ifndef RPI_NET_SHM_ENDPOINT_H
#define RPI_NET_SHM_ENDPOINT_H

#include "net/bytes/frame.h"
#include "net/bytes/sticky_error.h"
#include "net/link/acceptor.h"
#include "net/link/connector.h"
#include "net/link/transport.h"
#include "net/memory/ring_pair.h"
#include "net/shm/shm_buffers.h"
#include "net/socket/unix_socket.h"

/* In larger worlds ranks have doorbells (doorbell.h). In smaller ones looking at all links
 * costs less than ringing. */
enum { RPI_SHM_DOORBELL_WORLD = 16 };

/* A frame that says where its payload lies. */
enum { RPI_SHM_PLACE_FRAME_BYTES = RPI_FRAME_HEADER_BYTES + sizeof(rpi_shm_place) };

typedef enum rpi_shm_stage {
    RPI_SHM_NEW,
    RPI_SHM_CALLED, /* the socket is connected, and a proof has begun if the job has a secret */
    RPI_SHM_GREETED, /* the hello is sent, and our descriptors are passed */
    RPI_SHM_UP,
    RPI_SHM_GONE, /* the peer's socket has ended */
} rpi_shm_stage;

/* The place of the payload of the frame that is peeked at. */
typedef enum rpi_shm_lies {
    RPI_SHM_LIES_BEHIND,   /* its header, as everywhere */
    RPI_SHM_LIES_THERE,    /* in a buffer of the peer's */
    RPI_SHM_LIES_WRITABLE, /* the same, if it may be written */
    RPI_SHM_LIES_HERE,     /* where the peer has written it: in a buffer of ours */
} rpi_shm_lies;

typedef struct rpi_shm_link {
    rpi_link base;
    int socket, peer_event;
    rpi_doorbell_page *peer_doorbell; /* NULL: it has none */
    rpi_shm_stage stage;
    unsigned char call[RPI_PROOF_CALL_BYTES];
    void *memory;
    size_t memory_bytes;
    rpi_sticky_error sticky;
    rpi_shm_buffers buffers;
    rpi_shm_place to; /* the place of the payload of the frame to be committed: reaches() */
    rpi_shm_lies lies;
    unsigned char *payload; /* in a buffer of the peer's; NULL otherwise */
    size_t payload_bytes;   /* of a payload that does not follow its header */
    rpi_ring_pair pair;
} rpi_shm_link;

typedef struct rpi_shm_endpoint {
    rpi_endpoint base;
    rpi_acceptor acceptor;
    rpi_connector *connector; /* instead of it if links are made on need */
    rpi_hello hello;
    char name[RPI_UNIX_NAME_BYTES]; /* of the socket, in the abstract namespace */
    int event, epoll_fd;
    bool armed, zero_copy;
    rpi_doorbell doorbell; /* page NULL: all links are examined */
    unsigned passes;
    unsigned freed;        /* rpi_buffers_freed() when all peers were last told */
    rpi_shm_link **links;  /* [world] */
    rpi_shm_link **called; /* [world] begun by dial(), and not yet connected */
} rpi_shm_endpoint;

static inline bool rpi_shm_is_gone(const rpi_shm_link *link) {
    return link->stage == RPI_SHM_GONE;
}

/* Something has happened on a link for which its peer does not ring: its end, or room or a
 * payload for which we wait. */
static inline void rpi_shm_mark_ready(rpi_shm_endpoint *endpoint, const rpi_shm_link *link) {
    if (endpoint->doorbell.page) rpi_doorbell_note(&endpoint->doorbell, link->base.peer);
}

/* The functions below are those of the contract of a transport (transport.h), except where a
 * comment says otherwise. */

/* ---- shm_connect.c ---- */

/* The link makes this transition. This one and the next are not in the contract. */
void rpi_shm_enter(rpi_shm_link *link, rpi_shm_stage stage);
rp_status rpi_shm_connect(rpi_endpoint *endpoint, int peer, const char *address,
                          int64_t deadline_ns, rpi_link **out_link);
rp_status rpi_shm_dial(rpi_endpoint *endpoint, const int *peers, const char *const *addresses,
                       int count, int64_t deadline_ns, int *out_failed);
/* For an endpoint whose links are made on need. */
rp_status rpi_shm_call(rpi_endpoint *endpoint, int peer, const char *address);
rp_status rpi_shm_connected(rpi_endpoint *endpoint, int *out_peer, rpi_link **out_link);
extern const rpi_call_kind rpi_shm_connecting;
/* Its sockets wake the endpoint. link NULL: of no link. */
rp_status rpi_shm_watch(rpi_shm_endpoint *endpoint, int fd, rpi_shm_link *link);
void rpi_shm_link_close(rpi_shm_link *link); /* NULL is fine */

/* ---- shm_ready.c ---- */

/* Read from the socket of a link: notes about buffers, or the end of the peer. Not in the
 * contract. */
void rpi_shm_receive_notes(rpi_shm_endpoint *endpoint, rpi_shm_link *link);
const rpi_rank_set *rpi_shm_ready(rpi_endpoint *endpoint);
rp_status rpi_shm_progress(rpi_endpoint *endpoint);
bool rpi_shm_arm(rpi_endpoint *endpoint, int *out_fd, int64_t *wake_at_ns);
void rpi_shm_disarm(rpi_endpoint *endpoint);

/* ---- shm_frames.c ---- */

rp_status rpi_shm_reserve(rpi_link *link, size_t bytes, void **out_region);
rp_status rpi_shm_commit(rpi_link *link, size_t bytes);
rp_status rpi_shm_peek(rpi_link *link, const void **out_frame, size_t *out_bytes);
void rpi_shm_release(rpi_link *link);

/* ---- shm_zero_copy.c ---- */

extern const rpi_zero_copy rpi_shm_zero_copy;

#endif
