/* What the folders of comm/ share: the communicator, its requests and their chunks.
 *
 *   values/    what is done to elements, and which of them a part holds
 *   core/      communicator.h: this; operation_kind.h: what kinds of operations differ in;
 *              context.h: what communicators share; connections.c: its
 *              links and peers; progress_owner.h: whose turn it is to make progress; request.h:
 *              numbering, signing, completing, pooling; chunk.h: a chunk in flight;
 *              compiled_schedule.h: schedules made ready to run; urgency.h: what goes first;
 *              failure.c: the first failure, for all; frame_buffers.h: memory for frames;
 *              watch.h: what methods, which stand above, say and decide themselves
 *   device/    elements in memory of a GPU (device.h)
 *   parts/     what a step does to a part (parts.h)
 *   protocol/  what ranks say to each other: flow.h (which frames may leave, and when),
 *              clear_to_send.h (which chunks have begun), operation_kinds.h (the kinds, each
 *              in its own file: collective_kind.c, pair_protocol.c, exchange_protocol.c),
 *              pair_protocol.h (tags.h: which send meets which receive),
 *              exchange_protocol.h (neighborhood.h: between whom), window_table.h (windows,
 *              which neighbours write into), unexpected.h (frames that come too early),
 *              open_close.h (and before their communicator)
 *   run/       executor.h: one iteration: receive, run, send (executor.c), what a step does
 *              (instructions.c), links that are late or broken, lack of progress (deadline.c);
 *              receive.h: frames to RECV steps; in_place.h: sends whose payload stays in a
 *              buffer of the caller's; progress_loop.h: who makes progress, and sleeping
 *   calls/     the public operations, on vectors (collectives.c), on what one rank each owns
 *              (owned_collectives.c) and on blocks, whose lengths two ranks know; posting.h:
 *              what they have in common, contributions.h: inputs that are changed; wait.c
 *   world/     create.h: create, destroy, statistics (create.c), communicators made of another
 *              (groups.c, survivors.c)
 *   window/    the calls of windows
 *
 * A folder includes those that stand before it.
 *
 * Threads: `lock` guards what is marked [lock]. Everything marked [progress] belongs to whoever
 * owns the progress of the context (its `owner`, handed over under the lock), so that an
 * iteration runs unlocked; [poster] to whoever posts, one at a time by contract. */
#ifndef RPI_COMM_COMMUNICATOR_H
#define RPI_COMM_COMMUNICATOR_H

#include "codec/codec.h"
#include "comm/core/compiled_schedule.h"
#include "comm/core/context.h"
#include "comm/core/neighborhood.h"
#include "comm/core/number_index.h"
#include "comm/core/operation_kind.h"
#include "comm/core/tags.h"
#include "comm/core/urgency.h"
#include "comm/values/partition.h"
#include "plan/choose.h"
#include "redpoll/window.h"

enum {
    RPI_ACTIVE_OPERATIONS =
        4, /* collectives that move at once; later ones wait for their turn */
    RPI_FRAME_PAYLOAD = 2 * RPI_BUCKET_BYTES_MAX, /* longest payload of a frame */
};

/* Sends and receives run a schedule of a world of two: 0 sends, 1 receives. */
enum { RPI_PAIR_SENDER, RPI_PAIR_RECEIVER };
enum { RPI_ANYBODY = -1, RPI_NO_PEER = -2 };

/* This many bytes stand before the payload of a neighbour's frame: the weight that its sender
 * gives it. */
enum { RPI_EDGE_WEIGHT_BYTES = 8 };

/* Flow control (flow.c, docs/wire.md). */
enum {
    RPI_EAGER_BASE =
        16 * 1024, /* what a link may carry before its receiver has sent a credit */
    RPI_EAGER_LINK = 1024 * 1024, /* the most unrequested bytes that it may carry */
    RPI_EAGER_PROCESS = 64 << 20, /* beyond the base, for all links of a process */
    RPI_FRAME_COST = 256,         /* of a frame, beside its payload */
};

/* What a request knows of one rank: flow.c. */
typedef struct rpi_flow_edge {
    uint32_t cts_chunks; /* chunks that have started there, as far as is known here */
    uint32_t told;       /* chunks started here, as told to that rank */
    bool asked;          /* it has been asked to tell */
    bool expected;       /* it knows that we wait for its vector (exchange_protocol.c) */
    bool asks;           /* it wants to be told */
} rpi_flow_edge;

/* request.c draws the steps. */
typedef enum rpi_request_stage {
    RPI_REQUEST_IDLE, /* in the pool */
    RPI_REQUEST_MADE, /* its caller's, who fills it in */
    RPI_REQUEST_POSTED,
    RPI_REQUEST_UNBOUND, /* in the queue: a receive from any rank that has no sender yet */
    RPI_REQUEST_QUEUED,
    RPI_REQUEST_PARKED, /* and only a frame can move it: iterations skip it */
    RPI_REQUEST_DONE,
} rpi_request_stage;

struct rp_request {
    rpi_request_stage
        stage; /* who may change it: its caller, then [progress], then its caller */
    struct rp_request *next;    /* in the inbox, the queue or the pool */
    struct rp_request *sibling; /* among all of the communicator */
    rp_comm *comm;
    const rpi_operation_kind *kind; /* set by its caller, before everything below */
    rpi_collective collective;
    uint64_t sequence;
    rpi_compiled_schedule *compiled;
    rpi_partition partition;
    rp_reduction reduce;
    uint64_t seed, step, key;
    int peer; /* point to point: the other side, or RPI_ANYBODY; else RPI_NO_PEER */
    int tag;  /* point to point */
    rpi_neighborhood
        neighborhood;            /* of an exchange with neighbours; kept for the next request */
    rp_completions *completions; /* [lock] queue and token for its completion; NULL: none */
    uint64_t token;
    rpi_frame_header header; /* of its frames, except for chunk, part and round */
    uint32_t next_chunk, chunks_done;
    struct rpi_chunk *chunks; /* in flight, in order [progress] */
    rpi_flow_edge
        *edges; /* [comm's world] of collectives [progress]; kept for the next request */
    rpi_urgency urgency; /* since it was posted */
    int asking;          /* [progress] ranks that asked for CTS of started chunks */
    uint64_t moved;      /* [progress] instructions that were done when last examined */
    int64_t moved_ns;    /* since when it has not moved; from its posting on */
    bool has_rts; /* [progress] point to point: the receiver knows, or need not be told */
    uint64_t awaits_control; /* [progress] nor before comm->control_frames differs from this */
    struct rpi_transfer *device;   /* elements are in memory of a GPU: device.h; else NULL */
    struct rpi_transfer *transfer; /* that, kept for the next request; NULL: none so far */
    atomic_bool enqueued;          /* set once: only the GPU's part is left, or it is done */
    atomic_bool done;              /* the same for RPI_REQUEST_DONE, after status and message */
    rp_status status;
    char message[sizeof((rpi_failure *)0)->text];
};

/* making.c draws the steps. */
typedef enum rpi_comm_making {
    RPI_COMM_UNNUMBERED, /* waits for its number */
    RPI_COMM_NUMBERED,   /* is open under it, perhaps not on all members */
    RPI_COMM_GIVEN_UP,   /* and a member has left before all had opened it, as far as is known
                          * here */
    RPI_COMM_MET,        /* all members have opened it */
} rpi_comm_making;

/* failure.c draws the steps. */
typedef enum rpi_comm_health {
    RPI_COMM_WELL,
    RPI_COMM_FAILED,  /* nothing moves any more */
    RPI_COMM_DECIDED, /* and `failure` is known */
} rpi_comm_health;

/* Another rank of a communicator. */
typedef struct rpi_peer {
    rpi_connection *connection; /* whose link leads there */
    rp_status broken; /* nothing more comes from it, and it receives nothing; RP_OK while it is
                         usable */
    const char *reason; /* why, in words */
    rpi_tags tags;      /* of sends and receives with this rank [lock] */
    /* Bytes of eager frames since the communicator was made: flow.c. */
    uint64_t eager_sent, eager_limit;              /* ours: sent so far, and the limit */
    uint64_t eager_come, eager_taken, eager_bound; /* its: arrived, taken by their chunks,
                                                    * allowed */
    size_t eager_room;                             /* the room for its unexpected frames */
    uint64_t reject_due; /* the round whose end it is to be told; 0: none */
    uint64_t passable;   /* what its link counted with our last frame that was not urgent */
    bool asked;          /* asked whether it is still a member: links on need */
    int control_frames;  /* of it that are queued as unexpected, without credit */
} rpi_peer;

struct rp_comm {
    rpi_context *context;
    const rpi_operation_kind *const *kinds; /* by the top bits of a number */
    int rank, world;
    int *members;  /* [world] its ranks, as the context numbers them */
    int *place_of; /* [context's world] and back; -1: no member */
    char *name;
    uint32_t id, epoch; /* numberer and number: context.h */
    _Atomic double timeout_s;
    double warn_after_s;
    bool strict_timeout;    /* a rank that computes is late, too */
    atomic_bool is_watched; /* its owner decides about receives for which no call waits:
                             * deadline.c */
    int64_t silence_ns;     /* a rank without a heartbeat for this long counts as stopped */
    rp_priority priority;   /* no default */
    size_t chunk_bytes,
        chunks_in_flight; /* chunk_bytes 0: chosen, see rpi_comm_chunk_bytes() */
    int *hosts;           /* [world] numbered by first appearance; NULL in a world of one */
    const int *host_of;   /* as plan.h has it: these, or NULL */
    bool links_are_hosts; /* links are shaped, and hosts not named: each rank is a host */
    bool is_shaped;
    bool one_host;                    /* all links are memory or loopback, at full speed */
    rpi_control_group *group;         /* NULL where the context has no control connection */
    const rpi_control_group *made_of; /* its parent's, while it is being made; NULL: none */
    rpi_peer *peers;                  /* [world] [progress] */
    bool has_broken;                  /* [progress] some peer is */
    bool is_open;                     /* part of the context */
    bool is_made;                     /* of another communicator */
    bool is_revoked;                  /* its failure is known here, perhaps not elsewhere yet */
    rpi_comm_making making;           /* [progress] how far */
    void *identity; /* name and members, for comparison; NULL: all have been told */
    size_t identity_bytes;
    rpi_rank_set untold; /* [progress] of the numberer: members that have not been told yet */
    int untold_count;    /* [progress] */
    char transport[64];

    rp_comm *next;        /* [progress] in the context's list of all */
    rp_comm *next_active; /* [progress] and in that of those that have work */
    bool is_active;       /* [progress] */
    bool was_served;      /* [progress] it had room in a link in this iteration */
    rp_comm *next_inbox;  /* [lock] and in that of those with something in their inbox */
    bool has_inbox;       /* [lock] it is in that list */
    int waiters;          /* [lock] callers that wait for a request */
    int64_t scan_ns;      /* [progress] when to examine operations that do not move */
    uint64_t exchanged;   /* [progress] bytes, of any communicator, with ranks of this one */
    int64_t exchanged_ns; /* [progress] when that was last seen to grow */
    rp_request *waited;   /* [lock] the first of its windows' waits; NULL: none */
    rp_request *inbox, **inbox_end; /* [lock] posted, not seen by the progress owner */
    int in_flight;                  /* [lock] requests posted and not complete */
    rp_request *idle_requests;      /* [lock] */
    rp_request *requests;           /* [lock] all there are */
    rpi_compiled_schedule *compiled_schedules; /* [poster] */
    rpi_choices choices;                       /* made once, so that posting looks up */
    uint64_t next_sequence;                    /* [lock] */
    uint64_t last_exchange;                    /* [lock] that this rank has posted */
    rp_comm_stats stats;                       /* [lock] */
    int64_t busy_since_ns;                     /* [lock] */
    rpi_failure failure;                       /* [lock] status RP_OK while all is well */
    rpi_failure report;             /* [lock] the failure found by this rank; RP_OK: none */
    int64_t decision_ns;            /* [lock] when that becomes the failure unless a decision
                                     * comes */
    _Atomic rpi_comm_health health; /* changed under the lock: failure.c */

    rp_request *queue, **queue_end; /* [progress] in posting order */
    int queued[RPI_URGENCIES];      /* [progress] how many of these are of each urgency */
    rpi_index
        by_number; /* [progress] rp_request: the whole queue except receives without a sender */
    rpi_index unexpected; /* [progress] rpi_unexpected: early frames, by operation and rank */
    uint64_t control_frames;  /* [progress] RTS and other control frames received, and one */
    bool credit_due;          /* [progress] some rank is to be sent a credit */
    bool rejects_due;         /* [progress] some rank is to be told that a round is over */
    rp_window *windows;       /* [progress] in the order of their numbers; changed by posters */
    uint32_t last_window;     /* number of the last that was created */
    uint64_t in_place_frames; /* [progress] operations whose payload stayed in place, */
    uint64_t written_frames;  /* [progress] or was written where the receiver wants it */
    bool ending;              /* [progress] it has failed, and a GPU is still working on it */
    bool windows_due;         /* [progress] a frame of one waits for room in its link */
    int64_t looked_ns;        /* [progress] for neighbours that are late */
    int64_t called_ns;        /* [progress] ranks without links that are waited for */
    bool calls_on;            /* [progress] some of them have no link yet */
    uint64_t rts_frames;      /* [lock] received so far */
    uint64_t seen_sequence; /* [progress] last collective the progress owner has seen posted */
    uint64_t seen_exchange; /* [progress] and the last round, as its sequence */
    int64_t encode_ns, decode_ns;        /* [progress] folded into stats */
    atomic_int_fast64_t progress_ns;     /* [progress] when something moved last; read by all */
    int64_t warned_ns;                   /* [progress] */
    atomic_uint_fast64_t sent, received; /* bytes on the wire */
    atomic_uint_fast64_t values_sent;    /* what these were before they were encoded */
};

/* It has its number, under which it is open. */
static inline bool rpi_comm_is_numbered(const rp_comm *comm) {
    return comm->making != RPI_COMM_UNNUMBERED;
}

static inline bool rpi_comm_has_failed(const rp_comm *comm) {
    return atomic_load(&comm->health) != RPI_COMM_WELL;
}

/* Others only compare it with now: no order is needed. */
static inline void rpi_comm_progressed(rp_comm *comm, int64_t now_ns) {
    atomic_store_explicit(&comm->progress_ns, now_ns, memory_order_relaxed);
}

static inline void rpi_comm_count_sent(rp_comm *comm, size_t bytes) {
    atomic_fetch_add_explicit(&comm->sent, bytes, memory_order_relaxed);
}

/* The link to a member; NULL: there is none (yet), and none to itself. */
static inline rpi_link *rpi_peer_link(const rpi_peer *peer) {
    return peer->connection->link;
}

static inline bool rpi_p2p_is_send(const rp_request *request) {
    return request->compiled->schedule.rank == RPI_PAIR_SENDER;
}

/* A receive from any rank that has not found its sender. */
static inline bool rpi_request_is_unbound(const rp_request *request) {
    return request->peer == RPI_ANYBODY;
}

/* Which kind of operation has this number. */
static inline const rpi_operation_kind *rpi_operation_kind_of(const rp_comm *comm,
                                                              uint64_t sequence) {
    return comm->kinds[sequence >> RPI_NUMBER_KIND_SHIFT];
}

/* As messages say it. */
static inline unsigned long long rpi_number_in_words(const rp_comm *comm, uint64_t sequence) {
    return sequence - rpi_operation_kind_of(comm, sequence)->first;
}

/* ---- making.c ---- */

/* The next transition of its making. [progress], or not open yet. */
void rpi_comm_go_to(rp_comm *comm, rpi_comm_making making);

/* ---- failure.c ---- */

/* Reports a failure to all ranks. Everything here fails with the world's first failure, as soon
 * as it is known which one that is. Does not block. Any thread. */
void rpi_comm_fail(rp_comm *comm, const rpi_failure *failure);
/* The first, as far as it is known here; RP_OK: none. Any thread. */
rpi_failure rpi_comm_failure(const rp_comm *comm);
/* Reports it, too, but does not wait for the decision: everything here fails with this failure.
 */
void rpi_comm_fail_here(rp_comm *comm, const rpi_failure *failure);
void rpi_comm_fail_text(rp_comm *comm, rp_status status, int rank, const char *format, ...)
    RP_PRINTF(4, 5);
bool rpi_comm_check_control(rp_comm *comm); /* [progress] true: failed, and decided */
/* Whether the final `failure` of a communicator that has failed is known. Any thread. */
bool rpi_comm_is_decided(rp_comm *comm);
void rpi_comm_await_decision(rp_comm *comm); /* after it has failed: wait until it is */

/* ---- connections.c ---- */

/* Its link has failed, with the recorded message. [progress] */
void rpi_peer_break(rp_comm *comm, int peer, rp_status status);
/* It has destroyed the communicator, and all its earlier frames have been received. [progress]
 */
void rpi_peer_leave(rp_comm *comm, int peer);
/* The frame that says so. If it names a dead member the communicator ends on this side, too. */
void rpi_peer_receive_fin(rp_comm *comm, int peer, const rpi_frame_header *header);

#endif
