/* The contract of a transport kind; transports.c is the catalogue.
 *
 * An endpoint is one rank's end of one communicator on one transport; a link joins it to one
 * peer. A link carries frames in order, both ways. The sender reserves a region, fills it and
 * commits it; the receiver looks at the oldest frame where it lies and releases it: no copy
 * stands between the encoder and the wire.
 *
 * Threads: all functions of one endpoint and its links are called by one thread at a time.
 * Blocking: only connect() blocks, at most until its deadline. Everything else returns at once,
 * RP_PENDING when it would have to wait. Errors: RP_PEER when the other side closed or died
 * (frames that had arrived are still delivered first), RP_CORRUPT when bytes cannot be a frame;
 * a failed link stays failed and returns the same status again. No function raises SIGPIPE. */
#ifndef RPI_NET_TRANSPORT_H
#define RPI_NET_TRANSPORT_H

#include "base/rank_set.h"
#include "base/status.h"
#include "net/bytes/look.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What ranks tell each other before they choose how to talk. */
typedef struct rpi_peer_info {
    char host[64];    /* boot id and network namespace: equal means same kernel and same net */
    char machine[64]; /* boot id: equal means the memory of one kernel */
    char named[64];   /* the host that it counts as being on; empty: the one it is on */
    int64_t pid;
    uint64_t process; /* random, equal for threads of one process */
} rpi_peer_info;

/* Shape of a link (`--link 1Gbit,50us`): what one rank's network interface does, each way. */
typedef struct rpi_link_shape {
    double bytes_per_s; /* 0: no shaping */
    double latency_s;
} rpi_link_shape;

typedef struct rpi_endpoint_options {
    int rank, world;
    uint64_t session; /* random, chosen by rank 0, equal on all ranks: rejects other jobs */
    const struct rpi_secret *secret; /* of the job, which callers prove that they have
                                        (proof.h); NULL: there is none. Copied */
    const char *bind_host; /* interface to listen on; NULL: the one the store was reached by, or
                              loopback */
    size_t frame_bytes;    /* longest frame, header included; the executor never sends more */
    int streams; /* connections that are one link, where bytes leave the kernel; 0: one.
                    The same on all ranks */
    rpi_link_shape shape;
    struct rpi_host_nic *nic; /* what the shaping wrapper takes in place of a NIC of its own;
                                   NULL: none. Borrowed until close() */
    const struct rpi_transport *inner; /* the shaping wrapper only: what it wraps */
    bool zero_copy; /* who uses the endpoint asks rpi_zero_copy where payloads lie */
    bool on_need;   /* links come by call() and connected(), not by connect() */
    rpi_look look;  /* of who waits in connect(); its context may go when all links are made */
} rpi_endpoint_options;

enum { RPI_STREAMS_MAX = 16 };

/* How the next frame of a link leaves: set by its sender before reserve(), and left until
 * commit().
 */
typedef enum rpi_traffic {
    RPI_TRAFFIC_PLAIN, /* behind all that was committed before */
    RPI_TRAFFIC_BULK, /* likewise, and it leaves room for others: reserve() has none while about
                         two frames wait to leave */
    RPI_TRAFFIC_URGENT, /* in kinds that can, ahead of all plain and bulk that has not left */
} rpi_traffic;

/* Kinds embed these as their first member. */
typedef struct rpi_endpoint {
    const struct rpi_transport *transport;
    int rank, world;
    const struct rpi_transport *inner; /* what a wrapper wraps; else NULL */
    bool tls;                          /* what its links say is encrypted */
    uint64_t bytes_moved;              /* by all its links, both ways */
} rpi_endpoint;

typedef struct rpi_link {
    rpi_endpoint *endpoint;
    int peer;
    uint64_t bytes_sent, bytes_received; /* on the wire: frames and whatever the kind adds */
    rpi_traffic traffic;                 /* the sender's wish; plain from the start */
    /* In kinds in which urgent frames pass others: how many others were committed, and how many
     * of these, the oldest, have left; progress() counts on. 0 in all other kinds. */
    uint64_t passable, settled;
    uint64_t behind; /* set with `traffic`: how many of these are seen before an urgent frame.
                        Which have not left hold up those behind it */
} rpi_link;

/* For kinds. */
static inline void rpi_link_count_sent(rpi_link *link, size_t bytes) {
    link->bytes_sent += bytes;
    link->endpoint->bytes_moved += bytes;
}
static inline void rpi_link_count_received(rpi_link *link, size_t bytes) {
    link->bytes_received += bytes;
    link->endpoint->bytes_moved += bytes;
}

/* Frames whose payload stays in a buffer of its sender (net/memory/buffers.h), where the
 * receiver reads it. Of endpoints that were opened with `zero_copy`; others neither send nor
 * take such frames. */
typedef struct rpi_zero_copy {
    /* The peer can read this memory; when not, later perhaps, and payloads are copied. */
    bool (*reaches)(rpi_link *link, const void *payload, size_t bytes);
    /* Of bytes of a frame: what reserve() is asked for when the payload is not in it. */
    size_t frame_bytes;
    /* As commit(), of a header that is sealed with the payload's length. The payload, which the
     * peer reaches, must stay as it is until is_completed(*out_number); writable: the peer may
     * change it until then, and no part of it lies in another frame that is out. */
    rp_status (*commit)(rpi_link *link, const void *payload, size_t bytes, bool writable,
                        uint32_t *out_number);
    /* Of a frame whose payload was written where an earlier one's lay: begin_write(). */
    rp_status (*commit_written)(rpi_link *link, size_t bytes);
    /* The receiver has released that frame. */
    bool (*is_completed)(rpi_link *link, uint32_t number);
    /* The payload of a frame that is not completed may change from here on; its receiver never
     * takes what it reads there for what was sent, nor writes there. False: it is writing there
     * just now, and may go on: the memory has to be taken away from it (rpi_buffers_detach()).
     * Never waits, since whoever revokes moves all other links, too. */
    bool (*revoke)(rpi_link *link, uint32_t number);
    /* Where the payload of the frame lies that peek() showed, aligned or not; NULL: behind its
     * header. */
    const void *(*payload)(rpi_link *link);
    /* It was written where a payload of ours lay: there is none in it. */
    bool (*is_written)(rpi_link *link);
    /* The same place to write to, until end_write(); NULL: its sender has not said that it may
     * be, or has revoked it. */
    void *(*begin_write)(rpi_link *link);
    void (*end_write)(rpi_link *link);
    /* Asked after reading a payload: false when its sender has revoked it, so that what was
     * read is of no use. The frame is then to be released unread, or left. */
    bool (*is_valid)(rpi_link *link);
} rpi_zero_copy;

typedef struct rpi_transport {
    const char *name;     /* "inproc", "shm", "tcp", "shaped" */
    const char *summary;  /* one line */
    bool checksum;        /* frames leave this kernel's memory: seal payloads with a CRC */
    int link_descriptors; /* that each link holds open, or each of its streams */
    bool multistream;     /* a link may be several connections: options, streams */
    bool (*reaches)(const rpi_peer_info *self, const rpi_peer_info *peer);
    rp_status (*open)(const rpi_endpoint_options *options, rpi_endpoint **out_endpoint);
    /* What a peer needs to connect, as text to publish in the store. */
    rp_status (*address)(rpi_endpoint *endpoint, char *text, size_t bytes);
    /* Both sides call it for each other; returns when the link takes frames. The higher rank
     * dials the lower one's address; the lower one waits for it to come (inproc waits for
     * nobody). Ranks that connect to their peers in rising order meet no cycle; dialling all
     * lower ranks first and then waiting for all higher ones does as well. RP_TIMEOUT: the
     * peer did not come; the endpoint is still good. What the look says ends it, too. Wrong
     * session, world, rank or frame_bytes: RP_MISMATCH for the one who dialled (and for both
     * where both can tell); strangers that come to a listening endpoint are turned away and
     * change nothing. */
    rp_status (*connect)(rpi_endpoint *endpoint, int peer, const char *address,
                         int64_t deadline_ns, rpi_link **out_link);
    /* Optional. What connect() to lower ranks begins with, for several of them, so that they
     * are waited for at once: afterwards it is called for each. They may all wait for this
     * rank, and for nobody else. *out_failed: the peer for which it failed, as connect()
     * would. */
    rp_status (*dial)(rpi_endpoint *endpoint, const int *peers, const char *const *addresses,
                      int count, int64_t deadline_ns, int *out_failed);
    /* Of endpoints that were opened with `on_need`. Begin to connect to a peer, whose endpoint
     * is open; it need not call for it. Never waits. Again, or when the peer has called, is
     * fine: nothing happens. The address is borrowed until close(). A failure is this peer's.
     */
    rp_status (*call)(rpi_endpoint *endpoint, int peer, const char *address);
    /* The next link that stands since, whoever called. RP_PENDING: there is none; progress()
     * and arm() count one as ready. Any other status: the link to *out_peer, as connect() says
     * it, but that nothing is a matter of time: who cannot be reached is called again. Cheap.
     */
    rp_status (*connected)(rpi_endpoint *endpoint, int *out_peer, rpi_link **out_link);
    /* A region of at least `bytes` (<= frame_bytes), 64-byte aligned, to fill and then commit;
     * the same region again until it is committed (asking for more may move it and lose its
     * bytes). One at a time for each link. Where there is none for bulk, there may be for
     * others. */
    rp_status (*reserve)(rpi_link *link, size_t bytes, void **out_region);
    /* Send the sealed frame (frame.h) that begins the reserved region: `bytes` in all, no more
     * than were reserved. */
    rp_status (*commit)(rpi_link *link, size_t bytes);
    /* The oldest complete frame, in place, 64-byte aligned, valid until released. *out_bytes:
     * with the payload, wherever that lies (rpi_zero_copy). */
    rp_status (*peek)(rpi_link *link, const void **out_frame, size_t *out_bytes);
    void (*release)(rpi_link *link);
    /* Optional. Peers of which peek() may have something to say, a frame or a failure; of all
     * others it says RP_PENDING. They stay in the set until it does. NULL, always or never: of
     * any peer. */
    const rpi_rank_set *(*ready)(rpi_endpoint *endpoint);
    /* Move bytes without waiting: flush what is committed, take in what has come. A link that
     * fails says so itself; a failure here is the whole endpoint's. */
    rp_status (*progress)(rpi_endpoint *endpoint);
    /* Ask to be woken: from here on the fd that wake_fd names becomes readable when any link
     * may be ready: a frame where peek() had none, room where reserve() had none, a payload
     * that is completed, a failure not yet told. A frame peeked at and not released does not
     * count. Returns true when one may be ready already (do not sleep). *wake_at_ns: sleep no
     * longer than that (RPI_NEVER_NS: no limit). disarm() follows in either case, and
     * progress() after it.
     */
    bool (*arm)(rpi_endpoint *endpoint, int *out_fd, int64_t *wake_at_ns);
    void (*disarm)(rpi_endpoint *endpoint);
    /* Everything committed has left this process's buffers? RP_PENDING: progress first. */
    rp_status (*flushed)(rpi_endpoint *endpoint);
    /* Optional where it is the same as flushed(): everything committed has left this host too,
     * so that a peer gets it although it still writes to us when we close. */
    rp_status (*delivered)(rpi_endpoint *endpoint);
    /* Optional. The way that the link takes, for people: for each of its connections this
     * side's interface and address and the other's, "eth0 10.0.0.1 - 10.0.0.2", separated by ",
     * ". */
    void (*describe)(rpi_link *link, char *text, size_t bytes);
    /* Close links and endpoint; nothing of it remains. What was not delivered may be lost. */
    void (*close)(rpi_endpoint *endpoint);
    /* In a child that fork() made: close its copies of the descriptors. The peers and the
     * parent notice nothing; neither the endpoint nor its links can be used in the child any
     * more. */
    void (*close_after_fork)(rpi_endpoint *endpoint);
    const rpi_zero_copy *zero_copy; /* NULL: payloads always lie behind their headers */
} rpi_transport;

/* REDPOLL_STREAMS, 1 when it is not set: of rpi_endpoint_options. RP_INVALID. */
rp_status rpi_streams_find(int *out_streams);
const rpi_transport *rpi_transport_at(int index); /* NULL past the end */
rp_status rpi_transport_find(const char *name, const rpi_transport **out_transport);
/* What a user asked for; NULL for NULL and "auto". One that wraps others is refused. */
rp_status rpi_transport_choose(const char *name, const rpi_transport **out_transport);
/* Fill in what this process is. */
rp_status rpi_peer_info_self(rpi_peer_info *out_info);

#endif
