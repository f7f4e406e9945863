/* The contract of a transport kind; transports.c is the catalogue.
 *
 * An endpoint is one rank's end of one communicator on one transport; a link joins it to one
 * peer. A link carries frames in order, both ways. The sender reserves a region, fills it and
 * commits it; the receiver peeks at the oldest frame in place and releases it, so there is no
 * copy between the encoder and the wire.
 *
 * Threads: all functions of one endpoint and its links are called by one thread at a time.
 * Blocking: only connect() blocks, at most until its deadline. Everything else returns at once,
 * with RP_PENDING if it would have to wait. Errors: RP_PEER if the other side closed or died
 * (frames that had arrived are still delivered first), RP_CORRUPT if bytes cannot be a frame; a
 * failed link stays failed and returns the same status again. No function raises SIGPIPE. */
#ifndef RPI_NET_TRANSPORT_H
#define RPI_NET_TRANSPORT_H

#include "base/rank_set.h"
#include "base/status.h"
#include "net/bytes/look.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What ranks show each other before they choose a transport. */
typedef struct rpi_peer_info {
    char host[64];    /* boot id and network namespace: equal on the same kernel and network */
    char machine[64]; /* boot id: equal means that memory can be shared */
    char named[64];   /* the host to which it belongs; empty: the one on which it runs */
    int64_t pid;
    uint64_t process; /* random, equal for threads of one process */
} rpi_peer_info;

/* The shape of a link (`--link 1Gbit,50us`): the network interface of one rank, in each
 * direction. */
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
    bool zero_copy; /* the endpoint's user calls rpi_zero_copy for payloads in buffers */
    bool on_need;   /* links are made by call() and connected(), not by connect() */
    rpi_look look;  /* a check for connect(); its context may end when all links are made */
} rpi_endpoint_options;

enum { RPI_STREAMS_MAX = 16 };

/* How the next frame of a link is sent: set by its sender before reserve(), and not changed
 * until commit(). */
typedef enum rpi_traffic {
    RPI_TRAFFIC_PLAIN, /* after all frames that were committed before */
    RPI_TRAFFIC_BULK, /* likewise, and it leaves room for others: reserve() has none while about
                         two frames wait to leave */
    RPI_TRAFFIC_URGENT, /* in kinds that can, before all plain and bulk frames that have not
                         * left */
} rpi_traffic;

/* Kinds embed these as their first member. */
typedef struct rpi_endpoint {
    const struct rpi_transport *transport;
    int rank, world;
    const struct rpi_transport *inner; /* the endpoint that a wrapper wraps; else NULL */
    bool tls;                          /* its links are encrypted */
    uint64_t bytes_moved;              /* by all its links, both ways */
} rpi_endpoint;

typedef struct rpi_link {
    rpi_endpoint *endpoint;
    int peer;
    uint64_t bytes_sent,
        bytes_received;  /* on the wire: frames and the bytes that the kind adds */
    rpi_traffic traffic; /* the sender's choice; plain at first */
    /* In kinds in which urgent frames pass others: the number of other frames committed, and
     * the number of these, beginning with the oldest, that have left; progress() updates it. 0
     * in all other kinds. */
    uint64_t passable, settled;
    uint64_t behind; /* set with `traffic`: this many passable frames, up to the last of its
                        communicator, are received before an urgent one */
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
 * receiver reads it. Only for endpoints that were opened with `zero_copy`; others neither send
 * nor take such frames. */
typedef struct rpi_zero_copy {
    /* Whether the peer can read this memory; if not it may be able to later, and payloads are
     * copied. */
    bool (*reaches)(rpi_link *link, const void *payload, size_t bytes);
    /* Bytes to reserve() for a frame whose payload is not in it. */
    size_t frame_bytes;
    /* As commit(), for a header that is sealed with the payload's length. The peer can read the
     * payload, which must not change until is_completed(*out_number). writable: the peer may
     * change it until then, and no part of it is in another frame that is not completed. */
    rp_status (*commit)(rpi_link *link, const void *payload, size_t bytes, bool writable,
                        uint32_t *out_number);
    /* For a frame whose payload was written over that of an earlier one: begin_write(). */
    rp_status (*commit_written)(rpi_link *link, size_t bytes);
    /* The receiver has released that frame. */
    bool (*is_completed)(rpi_link *link, uint32_t number);
    /* The payload of a frame that is not completed may change from now on; its receiver never
     * uses what it reads there afterwards, nor begins to write there. False: it is writing
     * there now, and may continue, so the memory has to be taken away from it
     * (rpi_buffers_detach()). Never waits, since the thread that revokes moves all other links,
     * too. */
    bool (*revoke)(rpi_link *link, uint32_t number);
    /* The payload of the frame that peek() returned, aligned or not; NULL: it follows its
     * header. */
    const void *(*payload)(rpi_link *link);
    /* It was written over a payload of ours, and the frame has none. */
    bool (*is_written)(rpi_link *link);
    /* The same place for writing, until end_write(); NULL: its sender does not allow writing,
     * or has revoked the frame. */
    void *(*begin_write)(rpi_link *link);
    void (*end_write)(rpi_link *link);
    /* Call this after reading a payload: false if its sender has revoked it, so that the read
     * values must not be used. The frame is then released unread, or left. */
    bool (*is_valid)(rpi_link *link);
} rpi_zero_copy;

typedef struct rpi_transport {
    const char *name;     /* "inproc", "shm", "tcp", "shaped" */
    const char *summary;  /* one line */
    bool checksum;        /* frames leave this kernel's memory, so payloads get a CRC */
    int link_descriptors; /* that each link, or each of its streams, holds open */
    bool multistream;     /* a link may have several connections: options, streams */
    bool (*reaches)(const rpi_peer_info *self, const rpi_peer_info *peer);
    rp_status (*open)(const rpi_endpoint_options *options, rpi_endpoint **out_endpoint);
    /* What a peer needs to connect, as text for the store. */
    rp_status (*address)(rpi_endpoint *endpoint, char *text, size_t bytes);
    /* Both sides call it for each other; it returns when the link takes frames. The higher rank
     * calls the lower one's address; the lower one waits for that (inproc does not wait). Ranks
     * that connect to their peers in rising order form no cycle; nor do ranks that first call
     * all lower ones and then wait for all higher ones. RP_TIMEOUT: the peer did not call; the
     * endpoint is still usable. The status of the check ends it, too. Wrong session, world,
     * rank or frame_bytes: RP_MISMATCH for the caller (and for both if both can tell);
     * strangers that call a listening endpoint are refused and change nothing. */
    rp_status (*connect)(rpi_endpoint *endpoint, int peer, const char *address,
                         int64_t deadline_ns, rpi_link **out_link);
    /* Optional. Begins connect() to several lower ranks, so that waits for them overlap;
     * afterwards connect() is called for each. All of them may wait for this rank, but for no
     * other. *out_failed: the peer for which it failed, as connect() would. */
    rp_status (*dial)(rpi_endpoint *endpoint, const int *peers, const char *const *addresses,
                      int count, int64_t deadline_ns, int *out_failed);
    /* For endpoints opened with `on_need`. Begin to connect to a peer whose endpoint is open;
     * the peer need not call. Never waits. It may be repeated, or called after the peer has
     * called, and then does nothing. The address is borrowed until close(). A failure is one of
     * this peer. */
    rp_status (*call)(rpi_endpoint *endpoint, int peer, const char *address);
    /* The next link that was made, by a call of either side. RP_PENDING: there is none;
     * progress() and arm() count one as ready. Any other status is that of the link to
     * *out_peer, as from connect(), except that there is no deadline: a peer that cannot be
     * reached is called again. Cheap. */
    rp_status (*connected)(rpi_endpoint *endpoint, int *out_peer, rpi_link **out_link);
    /* A region of at least `bytes` (<= frame_bytes), 64-byte aligned, to fill and then commit;
     * the same region again until it is committed (asking for more may move it and lose its
     * bytes). One at a time for each link. If there is none for bulk, there may be one for
     * other frames. */
    rp_status (*reserve)(rpi_link *link, size_t bytes, void **out_region);
    /* Send the sealed frame (frame.h) that begins the reserved region: `bytes` in all, no more
     * than were reserved. */
    rp_status (*commit)(rpi_link *link, size_t bytes);
    /* The oldest complete frame, in place, 64-byte aligned, valid until released. *out_bytes:
     * including the payload, wherever that is (rpi_zero_copy). */
    rp_status (*peek)(rpi_link *link, const void **out_frame, size_t *out_bytes);
    void (*release)(rpi_link *link);
    /* Optional. The peers for which peek() may return a frame or a failure; for all others it
     * returns RP_PENDING. They stay in the set until it does. NULL, always or at times: any
     * peer. */
    const rpi_rank_set *(*ready)(rpi_endpoint *endpoint);
    /* Move bytes without waiting: send committed frames, receive what has arrived. A failed
     * link returns its failure itself; a failure here is that of the whole endpoint. */
    rp_status (*progress)(rpi_endpoint *endpoint);
    /* Request to be woken: from now on the descriptor wake_fd becomes readable if any link may
     * be ready: a frame where peek() had none, room where reserve() had none, a completed
     * payload, a failure that was not returned yet. A frame that was peeked at and not released
     * does not count. Returns true if a link may be ready already (do not sleep). *wake_at_ns:
     * sleep no longer than that (RPI_NEVER_NS: no limit). disarm() follows in either case, and
     * progress() after it. */
    bool (*arm)(rpi_endpoint *endpoint, int *out_fd, int64_t *wake_at_ns);
    void (*disarm)(rpi_endpoint *endpoint);
    /* Whether everything committed has left this process's buffers; RP_PENDING: progress first.
     */
    rp_status (*flushed)(rpi_endpoint *endpoint);
    /* Optional if it is the same as flushed(): everything committed has left this host, too, so
     * that a peer receives it even if it still writes to us when we close. */
    rp_status (*delivered)(rpi_endpoint *endpoint);
    /* Optional. The path of the link, for people: for each of its connections this side's
     * interface and address and the other's, "eth0 10.0.0.1 - 10.0.0.2", separated by ", ". */
    void (*describe)(rpi_link *link, char *text, size_t bytes);
    /* Close links and endpoint; nothing of them remains. Undelivered frames may be lost. */
    void (*close)(rpi_endpoint *endpoint);
    /* In a child made by fork(): closes its copies of the descriptors. The peers and the parent
     * notice nothing; the child can no longer use the endpoint or its links. */
    void (*close_after_fork)(rpi_endpoint *endpoint);
    const rpi_zero_copy *zero_copy; /* NULL: payloads always follow their headers */
} rpi_transport;

/* REDPOLL_STREAMS, 1 if it is not set: for rpi_endpoint_options. RP_INVALID. */
rp_status rpi_streams_find(int *out_streams);
const rpi_transport *rpi_transport_at(int index); /* NULL past the end */
rp_status rpi_transport_find(const char *name, const rpi_transport **out_transport);
/* The kind that a user named; NULL for NULL and "auto". A wrapper is refused. */
rp_status rpi_transport_choose(const char *name, const rpi_transport **out_transport);
/* Fill in what this process is. */
rp_status rpi_peer_info_self(rpi_peer_info *out_info);

#endif
