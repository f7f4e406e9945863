/* What the folders of comm/ share: the communicator, its requests and their chunks.
 *
 *   values/    what is done to elements, and which of them a part holds
 *   core/      fabric.h: what communicators share (ports.c: its links and peers;
 *              progress_token.c: whose turn it is to drive); request.c: numbering,
 *              completing, pooling; routine.h: schedules made ready to run; agreement.c:
 *              what ranks must agree on; failure.c: the first failure, for all;
 *              frame_blocks.c: memory for frames; watch.h: what methods, which stand above,
 *              say and judge themselves
 *   device/    elements in memory of a GPU (device.h)
 *   parts/     what a step does to a part (parts.h)
 *   protocol/  what ranks say to each other: flow.c (which frames may leave, and when),
 *              pair_protocol.c (tags.h: which send meets which receive),
 *              round_protocol.c (neighborhood.h: between whom), window_table.h (windows,
 *              which neighbours write into), unexpected.c (frames that come too early),
 *              open_close.c (and before their communicator)
 *   run/       executor.c: one pass: receive, run, send; actions.c: what a step does;
 *              in_place.c: sends whose payload stays in a buffer of the caller's;
 *              receive.c: frames to RECV steps; deadline.c: lack of progress;
 *              late_links.c, broken_links.c; progress_loop.c: who drives, and sleeping
 *   calls/     the public operations, on vectors (collectives.c) and on blocks, whose
 *              lengths differ; posting.c: what they have in common; wait.c
 *   world/     create.c: create, destroy, accounts; groups.c, survivors.c: communicators
 *              made of another
 *   window/    the calls of windows
 *
 * A folder includes those that stand before it. What many of them call is declared here, with
 * the file where it stands.
 *
 * Threads: `lock` guards what is marked [lock]. Everything marked [driver] belongs to whoever
 * holds the drive of the fabric (`driving`, handed over under the lock), so that a pass runs
 * unlocked; [poster] to whoever posts, one at a time by contract. */
#ifndef RPI_COMM_COMMUNICATOR_H
#define RPI_COMM_COMMUNICATOR_H

#include "codec/codec.h"
#include "comm/core/fabric.h"
#include "comm/core/neighborhood.h"
#include "comm/core/number_index.h"
#include "comm/core/routine.h"
#include "comm/core/tags.h"
#include "comm/values/cut.h"
#include "plan/choose.h"
#include "redpoll/window.h"

enum {
    RPI_ACTIVE_OPERATIONS = 4, /* collectives that move at once; later ones wait their turn */
    RPI_FRAME_PAYLOAD = 2 * RPI_BUCKET_BYTES_MAX, /* longest payload of a frame */
};

/* Sequence numbers of point-to-point operations count by pair, direction and tag. */
#define RPI_P2P_SEQUENCE  (UINT64_C(1) << 63)
#define RPI_P2P_UPWARD    (UINT64_C(1) << 62) /* from the lower rank to the higher */
#define RPI_P2P_TAG_SHIFT 31
#define RPI_P2P_NUMBERS   (UINT64_C(1) << 31)

/* Point to point runs a schedule of a world of two: 0 sends, 1 receives. */
enum { RPI_PAIR_SENDER, RPI_PAIR_RECEIVER };
enum { RPI_ANYBODY = -1 };

/* Rounds of neighbours are numbered by themselves: not all ranks take part in all. */
#define RPI_ROUND_SEQUENCE (UINT64_C(1) << 62)

static inline bool rpi_is_round(uint64_t sequence) {
    return sequence >> 62 == 1;
}

/* For messages: of a collective or a round. */
static inline unsigned long long rpi_sequence_number(uint64_t sequence) {
    return rpi_is_round(sequence) ? sequence - RPI_ROUND_SEQUENCE : sequence;
}

/* Before the payload of a neighbour's frame: the weight that its sender gives it. */
enum { RPI_SHARE_BYTES = 8 };

/* Flow control (flow.c, docs/wire.md). */
enum {
    RPI_EAGER_BASE = 16 * 1024,   /* what a link may carry before its receiver has spoken */
    RPI_EAGER_LINK = 1024 * 1024, /* the most it may carry of what nobody has asked for */
    RPI_EAGER_PROCESS = 64 << 20, /* beyond the base, for all links of a process */
    RPI_FRAME_COST = 256,         /* of a frame, beside its payload */
};

typedef struct rpi_block {
    struct rpi_block *next;
    int size;                /* its class: frame_blocks.c */
    rpi_frame_header header; /* of a frame set aside */
    size_t bytes;            /* of payload */
    bool written;            /* which is not here: RPI_WIRE_THERE */
    _Alignas(64) unsigned char payload[];
} rpi_block;

/* Frames in the order in which they came. */
typedef struct rpi_frames {
    rpi_block *first, *last; /* last: of some use while there is a first */
} rpi_frames;

/* What one rank sent of an operation before it could be taken: the operation is not posted
 * here, or has not begun with that chunk. */
typedef struct rpi_aside {
    rpi_frames frames;
    bool asks;    /* it wants to know when chunks have started */
    bool expects; /* it waits for a vector in that round */
} rpi_aside;

typedef enum rpi_wire_state {
    RPI_WIRE_EMPTY,
    RPI_WIRE_FRAME, /* the payload of a frame that still lies in its link */
    RPI_WIRE_BLOCK,
    RPI_WIRE_VALUES, /* never encoded: readers take the values it would decode to */
    RPI_WIRE_SENT,   /* the same, and an ADD has done its SEND already */
    RPI_WIRE_PUT, /* the same, and an ADD has put them where the SEND's receiver wants them */
    RPI_WIRE_PINNED, /* where a GPU writes or reads it (device.h) */
    RPI_WIRE_THERE,  /* its sender has put the values where they are decoded to */
} rpi_wire_state;

/* A wire slot of one chunk. */
typedef struct rpi_wire {
    uint8_t state;
    uint16_t readers; /* that have yet to run */
    int32_t peer;     /* whose link holds the frame */
    rpi_block *block;
    const unsigned char *data;
    size_t bytes;
    double share; /* what its sender has it multiplied by; of all but neighbours' frames 1 */
} rpi_wire;

/* One instance of a schedule. All arrays lie behind it in one piece of memory. */
typedef struct rpi_chunk {
    struct rpi_chunk *next;
    struct rp_request *request;
    uint32_t index;
    int left;           /* actions to finish */
    uint16_t *waits;    /* [steps]: predecessors to finish */
    uint64_t *ready;    /* [words]: actions that may run */
    uint64_t *finished; /* [words] */
    uint64_t *lent;     /* [words]: sends whose payload a peer still reads (in_place.c) */
    uint64_t *writable; /* [words]: sends whose answer may be written there */
    uint32_t *lent_as;  /* [steps]: the number of their frame in its link */
    int32_t *received;  /* [world]: frames so far */
    rpi_frames *aside;  /* [world]: frames whose RECV was not due when they came */
    rpi_wire *wires;
    unsigned char *sums;
    size_t sums_room, sum_stride;       /* bytes of them, and of one accumulator */
    struct rpi_device_chunk *of_device; /* kept for requests of a GPU */
    struct rpi_device_chunk *device;    /* that, or NULL: elements lie with the host */
} rpi_chunk;

/* A request's dealings with one rank: flow.c. */
typedef struct rpi_flow_edge {
    uint32_t granted; /* chunks that have started there, as far as is known here */
    uint32_t told;    /* chunks started here that it knows of */
    bool asked;       /* it has been asked to tell */
    bool expected;    /* it knows that its vector is waited for (round_protocol.c) */
    bool asks;        /* it wants to be told */
} rpi_flow_edge;

struct rp_request {
    struct rp_request *next;    /* in the inbox, the queue or the pool */
    struct rp_request *sibling; /* among all of the communicator */
    rp_comm *comm;
    rpi_collective collective;
    uint64_t sequence;
    rpi_routine *routine;
    rpi_cut cut;
    rp_reduction reduce;
    uint64_t seed, step;
    int peer;              /* point to point: the other side, -1: not known yet; else -1 */
    int tag;               /* point to point */
    rpi_neighborhood hood; /* of an exchange with neighbours; kept for the next request */
    rp_completions *completions; /* [lock] whom to tell, and what; NULL: nobody */
    uint64_t token;
    rpi_frame_header header; /* of its frames, but for chunk, part and round */
    uint32_t next_chunk, chunks_done;
    rpi_chunk *chunks; /* in flight, in order [driver] */
    rpi_flow_edge
        *edges;        /* [comm's world] of collectives [driver]; kept for the next request */
    int asking;        /* [driver] ranks that want to be told of started chunks */
    bool announced;    /* [driver] point to point: the receiver knows, or need not be told */
    bool awaits_frame; /* [driver] nothing but a frame can move it: passes leave it out */
    uint64_t awaits_word;          /* [driver] nor before comm->words has changed from this */
    struct rpi_transfer *device;   /* elements lie in memory of a GPU: device.h; else NULL */
    struct rpi_transfer *transfer; /* that, kept for the next request; NULL: none so far */
    atomic_bool enqueued; /* set once: nothing but the GPU's part is left, or it is done */
    atomic_bool done;     /* set once, under the lock, after status and message */
    rp_status status;
    char message[sizeof((rpi_failure *)0)->text];
};

/* Another rank of a communicator. */
typedef struct rpi_peer {
    rpi_port *port; /* whose link leads there */
    rp_status
        broken; /* nothing more comes from it, nor is heard there; RP_OK while it is good */
    const char *reason; /* why, in words */
    rpi_tags tags;      /* of sends and receives with this rank [lock] */
    /* Cost of frames that nobody had asked for, since the communicator is there: flow.c. */
    uint64_t eager_sent, eager_limit;              /* ours: so far, and up to where we may go */
    uint64_t eager_come, eager_taken, eager_bound; /* its: come, found a place, may come */
    size_t eager_room;                             /* what may be set aside for it */
    uint64_t passed; /* the round that it is to be told is over; 0: none */
} rpi_peer;

struct rp_comm {
    rpi_fabric *fabric;
    int rank, world;
    int *members;  /* [world] its ranks, as the fabric numbers them */
    int *place_of; /* [fabric's world] and back; -1: no member */
    char *name;
    uint32_t id, epoch;
    _Atomic double timeout_s;
    double warn_after_s;
    bool strict_timeout;    /* a rank that computes is not left in peace */
    atomic_bool is_watched; /* its owner judges what nobody waits for in a call: deadline.c */
    int64_t silence_ns;     /* a rank without a heartbeat for so long is taken for stopped */
    size_t chunk_bytes, window; /* chunk_bytes 0: chosen, see rpi_comm_chunk_bytes() */
    int *hosts;           /* [world] numbered by first appearance; NULL in a world of one */
    const int *host_of;   /* as plan.h has it: these, or NULL */
    bool links_are_hosts; /* links are shaped, and hosts not named: each rank is a host */
    bool is_shaped;
    bool one_host;            /* all links are memory or loopback, as fast as they are */
    rpi_control_group *group; /* NULL where the fabric has no control connection */
    rpi_peer *peers;          /* [world] [driver] */
    bool has_broken;          /* [driver] some peer is */
    bool is_open;             /* part of the fabric */
    bool is_made;             /* of another communicator */
    char transport[64];

    rp_comm *next;                  /* [driver] in the fabric's list of all */
    rp_comm *next_active;           /* [driver] and of those that have something to do */
    bool is_active;                 /* [driver] */
    rp_comm *next_caller;           /* [lock] and of those with an inbox */
    bool is_caller;                 /* [lock] */
    int waiters;                    /* [lock] callers who wait for a request */
    rp_request *inbox, **inbox_end; /* [lock] posted, not seen by the driver */
    int in_flight;                  /* [lock] requests posted and not complete */
    rp_request *idle_requests;      /* [lock] */
    rp_request *requests;           /* [lock] all there are */
    rpi_routine *routines;          /* [poster] */
    rpi_choices choices;            /* made once, so that posting looks up */
    uint64_t next_sequence;         /* [lock] */
    uint64_t last_round;            /* [lock] that this rank has posted */
    rp_comm_stats stats;            /* [lock] */
    int64_t busy_since_ns;          /* [lock] */
    rpi_failure failure;            /* [lock] status RP_OK while all is well */
    atomic_bool failed;             /* set after it, once */

    rp_request *queue, **queue_end; /* [driver] in posting order */
    rpi_index by_number; /* [driver] rp_request: all of the queue but receives without sender */
    rpi_index aside;     /* [driver] rpi_aside: what came too early, by operation and rank */
    uint64_t words;      /* [driver] announcements and other words heard, and one */
    bool credit_due;     /* [driver] some rank is to be told how much more it may send */
    bool passed_due;     /* [driver] some rank is to be told that a round is over */
    rp_window *windows;  /* [driver] in the order of their numbers; changed by posters */
    uint32_t last_window;            /* number of the last that was created */
    uint64_t lent_frames;            /* [driver] whose payload stayed where it was, */
    uint64_t written_frames;         /* [driver] or was put where the receiver wants it */
    bool ending;                     /* [driver] it has failed, and a GPU is still at it */
    bool windows_due;                /* [driver] a frame of one waits for room in its link */
    int64_t looked_ns;               /* [driver] for neighbours that are late */
    int64_t called_ns;               /* [driver] ranks without links that are waited for */
    uint64_t announcements;          /* [lock] heard so far */
    uint64_t seen_sequence;          /* [driver] last collective the driver has seen posted */
    uint64_t seen_round;             /* [driver] and the last round, as its sequence */
    int64_t encode_ns, decode_ns;    /* [driver] folded into stats */
    atomic_int_fast64_t progress_ns; /* [driver] when something last moved; read by all */
    int64_t warned_ns;               /* [driver] */
    atomic_uint_fast64_t sent, received; /* bytes on the wire */
    atomic_uint_fast64_t values_sent;    /* what these were before they were encoded */
};

/* Others only compare it with now: no order is needed. */
static inline void rpi_comm_progressed(rp_comm *comm, int64_t now_ns) {
    atomic_store_explicit(&comm->progress_ns, now_ns, memory_order_relaxed);
}

static inline void rpi_comm_count_sent(rp_comm *comm, size_t bytes) {
    atomic_fetch_add_explicit(&comm->sent, bytes, memory_order_relaxed);
}

/* The link to a member; NULL: there is none (yet), and none to itself. */
static inline rpi_link *rpi_peer_link(const rpi_peer *peer) {
    return peer->port->link;
}

static inline bool rpi_p2p_is_send(const rp_request *request) {
    return request->routine->schedule.rank == RPI_PAIR_SENDER;
}

#define RPI_COMM_NAME "world" /* where options name none */

/* create.c: of some ranks of a fabric (NULL: of all), not open yet. */
rp_status rpi_comm_new(rpi_fabric *fabric, int rank, int world, const int *members,
                       rp_comm **out_comm);
rp_status rpi_comm_set_options(rp_comm *comm, const rp_comm_options *options);
/* It has its name and id, and the fabric its links: frames come from here on. */
rp_status rpi_comm_begin(rp_comm *comm);
void rpi_comm_free(rp_comm *comm); /* no part of a fabric any more; NULL is fine */

/* world/comm_options.c */
rp_status rpi_comm_options_check(const rp_comm_options *options, int world);

/* world/groups.c: as rp_comm_group(); *out_lost: which of the ranks has died, where that is why
 * it failed, else as it was. */
rp_status rpi_group_try(rp_comm *parent, const int *ranks, int count,
                        const rp_comm_options *options, rp_comm **out_comm, int *out_lost);

/* failure.c: make a failure known to all ranks, and fail everything here with the world's
 * first. Any thread. */
void rpi_comm_fail(rp_comm *comm, const rpi_failure *failure);
/* The first, as far as it is known here; RP_OK: none. Any thread. */
rpi_failure rpi_comm_failure(const rp_comm *comm);
void rpi_comm_fail_text(rp_comm *comm, rp_status status, int rank, const char *format, ...)
    RP_PRINTF(4, 5);
/* run/broken_links.c: a failed link matters once something in flight needs it. [driver] */
void rpi_comm_check_links(rp_comm *comm);
bool rpi_comm_check_control(rp_comm *comm); /* [driver] true: failed */
/* Its link has failed, as was recorded. [driver] */
void rpi_peer_break(rp_comm *comm, int peer, rp_status status);
/* It has destroyed the communicator; frames from before that have come. [driver] */
void rpi_peer_leave(rp_comm *comm, int peer);
/* The frame in which it said so: perhaps because another has died, which then ends this side,
 * too. */
void rpi_peer_hear_left(rp_comm *comm, int peer, const rpi_frame_header *header);
/* Of a communicator that has failed by a death: all members hear by their links who is dead, as
 * the control connection tells it while rank 0 lives. */
void rpi_comm_tell_death(rp_comm *comm);
/* The failure in words for one request. A process that vanished is known by its name only: what
 * it left undone is added. Returns text. */
const char *rpi_failure_text(const rpi_failure *failure, const rp_request *request, char *text,
                             size_t bytes);

/* request.c */
rp_status rpi_request_new(rp_comm *comm, rp_request **out_request);
/* Sign and number it; RP_OK: it counts as in flight and must be put into the inbox. */
rp_status rpi_request_admit(rp_request *request);
/* rpi_drive_once() is to follow: it moves the first bytes and calls the progress thread. */
void rpi_request_enqueue(rp_request *request);
rp_status rpi_request_post(rp_request *request); /* both */
/* The driver looks at this communicator, posted or not, in its next pass. */
void rpi_comm_call(rp_comm *comm);
void rpi_request_complete(rp_request *request, rp_status status, const char *message);
void rpi_request_free(rp_request *request); /* back to the pool; takes the lock */
/* What an operation moves, as far as its routine depends on it. */
typedef struct rpi_load {
    bool lossy;   /* some codec is */
    bool device;  /* elements lie in memory of a GPU */
    bool plain;   /* bytes are values: nothing is lossy, or held back by error feedback */
    size_t bytes; /* of all elements */
} rpi_load;
rp_status rpi_comm_routine(rp_comm *comm, rpi_collective collective, const char *algorithm,
                           const rpi_plan_request *plan, const rpi_load *load,
                           rpi_routine **out_routine);
/* core/request_names.c: "all-reduce 5", "receive from rank 2 with tag 7" */
const char *rpi_request_name(const rp_request *request, char *text, size_t bytes);
/* "all-reduce 5, round 2 of 4, chunk 3 of 10" [driver] */
const char *rpi_request_text(const rp_request *request, char *text, size_t bytes);
/* For rpi_cut_make(), equal on all ranks. */
size_t rpi_comm_chunk_bytes(const rp_comm *comm, rpi_split_layout layout, int parts,
                            bool lossy);
/* Rank of the communicator behind a peer of the request's schedule, and back: the peer that
 * receives from it. -1: there is none. */
int rpi_request_rank(const rp_request *request, int peer);
int rpi_request_peer(const rp_request *request, int rank);

/* executor.c; rpi_fabric_pass() */
void rpi_chunk_finish(rpi_chunk *chunk, int action);
/* A SEND's frame is posted: later frames to that peer may follow. */
void rpi_chunk_let_sends_follow(rpi_chunk *chunk, int action);
void rpi_chunk_release(rpi_chunk *chunk);        /* its frames, blocks and itself */
void rpi_wire_read(rpi_chunk *chunk, int wire);  /* one reader less */
void rpi_wire_empty(rpi_chunk *chunk, int wire); /* what it holds is given back */
/* protocol/find.c: requests in flight, by the number in a frame that this rank sent;
 * NULL: none. */
rp_request *rpi_request_find(const rp_comm *comm, int rank, uint64_t sequence);
/* A request has its number: frames that came before it are looked at. False: a failure was made
 * known. */
bool rpi_request_enter(rp_request *request);

/* in_place.c [driver] */
/* Where the payload of a SEND lies, when its receiver can read it there; NULL: it is copied. */
const void *rpi_in_place_payload(const rpi_chunk *chunk, const rpi_action *send, size_t bytes);
/* The header of such a frame has been sealed in the region: it leaves. The SEND is not finished
 * before rpi_in_place_is_back(). */
rp_status rpi_in_place_post(rpi_chunk *chunk, const rpi_action *send, const void *payload,
                            size_t bytes);
bool rpi_in_place_lends(const rpi_chunk *chunk); /* something in it */
static inline bool rpi_in_place_is_lent(const rpi_chunk *chunk, int action) {
    return chunk->lent[action / 64] >> (action % 64) & 1;
}
bool rpi_in_place_is_back(const rpi_chunk *chunk, int action);
/* A fold's sum goes back to where what it adds came from: a place to write it to, until
 * rpi_in_place_end_write(); NULL: there is none. */
void *rpi_in_place_begin_write(const rpi_chunk *chunk, const rpi_action *fold,
                               const rpi_action *send);
void rpi_in_place_end_write(const rpi_chunk *chunk, const rpi_action *send);
/* This RECV's frame may be one whose payload was written into what was sent here. */
bool rpi_in_place_may_be_written(const rpi_chunk *chunk, const rpi_action *recv);
/* The chunk ends before its time: nobody takes what is still lent for what it was. */
void rpi_in_place_withdraw(rpi_chunk *chunk);
/* What an action has read of its wire slots is what was sent. */
bool rpi_in_place_stands(const rpi_chunk *chunk, const rpi_action *action);

/* frame_blocks.c [driver] */
rp_status rpi_block_take(rpi_fabric *fabric, size_t bytes, rpi_block **out_block);
void rpi_block_give(rpi_fabric *fabric, rpi_block *block);
void rpi_blocks_free(rpi_fabric *fabric); /* those not in use */
void rpi_frames_append(rpi_frames *frames, rpi_block *block);
rpi_block *rpi_frames_pop(rpi_frames *frames); /* there must be one */
void rpi_frames_clear(rpi_fabric *fabric, rpi_frames *frames);

/* flow.c [driver] */
void rpi_flow_init(rp_comm *comm);
void rpi_flow_close(rp_comm *comm);
size_t rpi_flow_promised(void); /* by this process, beyond the base */
/* May the frame of a SEND leave, and as which kind? RP_PENDING: not yet; its receiver has been
 * asked. */
rp_status rpi_flow_admit(rpi_chunk *chunk, const rpi_action *action, size_t bytes,
                         uint8_t *out_kind);
void rpi_flow_sent(const rpi_chunk *chunk, const rpi_action *action, size_t bytes,
                   uint8_t kind);
/* A SEND whose turn has come waits for word from its receiver, or for its payload. */
bool rpi_flow_is_held(const rpi_chunk *chunk, const rpi_action *action);
/* A frame with a payload of `bytes` has come; RP_CORRUPT (made known): it should not have. */
rp_status rpi_flow_come(rp_comm *comm, int rank, const rpi_frame_header *header, size_t bytes);
/* The chunk it is for has started here. */
void rpi_flow_placed(rp_request *request, int rank, const rpi_frame_header *header,
                     size_t bytes);
/* A frame says that its sender has started its chunk, wherever the frame still lies. */
void rpi_flow_heard_from(rp_request *request, int rank, const rpi_frame_header *header);
/* Frames of flow control itself, which are used up at once. */
void rpi_flow_hear(rp_comm *comm, int rank, const rpi_frame_header *header);
/* `rank` wants to be told of this request's chunks. */
void rpi_flow_note_ask(rp_request *request, int rank);
/* Tell ranks that wait for it what has started; `moved`: more will be soon. */
void rpi_flow_grant(rp_request *request, bool moved);
void rpi_flow_credit(rp_comm *comm); /* tell ranks how much more they may send unasked */
/* Send a header alone. RP_PENDING: no room in the link. */
rp_status rpi_flow_tell(rp_comm *comm, int rank, const rpi_frame_header *header);

/* protocol/pair_protocol.c */
/* core/operation_numbers.c: under the lock, the sequence number of a send or receive; of one
 * from any rank, the number it has until its sender is known. */
rp_status rpi_p2p_number(rp_request *request);
/* A receive from any rank that has not found its sender. */
bool rpi_p2p_is_unbound(const rp_request *request);
/* A send or receive whose other side has not been heard of. [driver] */
bool rpi_p2p_is_alone(const rp_request *request);
/* Say that a send is here, unless its receiver has asked for it; true: done. [driver] */
bool rpi_p2p_announce(const rp_request *request);
/* A receive from any rank finds its sender, and is one like any other. [driver] */
bool rpi_p2p_bind(rp_request *request);
/* The frame at the head of the link says that its rank has something to send. [driver] */
void rpi_p2p_hear(rp_comm *comm, int rank, const rpi_frame_header *header);
/* The sender has announced the message that this receive is for. [driver] */
bool rpi_p2p_is_announced(const rp_request *request);
/* Of a frame that belongs to no operation here: it is a receiver's token, its send comes later.
 */
bool rpi_p2p_is_future(const rp_comm *comm, int rank, const rpi_frame_header *header);

/* protocol/round_protocol.c */
/* core/operation_numbers.c: under the lock, the sequence of the next round, or of the one that
 * the caller numbered. */
rp_status rpi_round_number(rp_request *request);
rp_status rpi_round_routine(rp_comm *comm, const rpi_neighborhood *hood, bool device,
                            rpi_routine **out_routine);
/* Does this rank wait for a vector of that one? Not: made known, with both ranks' lists.
 * [driver] */
bool rpi_round_expects(rp_request *request, int rank);
/* The same of what it sends. [driver] */
bool rpi_round_sends(rp_request *request, int rank);
/* "rank 2 sends its vector to rank 0, where that round is over": made known. [driver] */
void rpi_round_fail_passed(rp_comm *comm, int rank, uint64_t sequence, const char *does);
/* What came for rounds that this rank has left out, now that it is past them; false: made
 * known. [driver] */
bool rpi_rounds_check_passed(rp_comm *comm);
/* RPI_FRAME_EXPECT and RPI_FRAME_PASSED. [driver] */
void rpi_round_hear(rp_comm *comm, int rank, const rpi_frame_header *header);
/* Nothing has moved for `idle_ns`: sources that are late are told who waits. [driver] */
void rpi_rounds_expect(rp_comm *comm, int64_t idle_ns);
int64_t rpi_rounds_next_ns(const rp_comm *comm); /* when to look again */
void rpi_rounds_tell_passed(rp_comm *comm);      /* [driver] */

/* protocol/window_serve.c, window_hear.c [driver] */
bool rpi_windows_serve(rp_comm *comm); /* send and apply what may be; true: something moved */
void rpi_windows_hear(rp_comm *comm, int rank, const rpi_frame_header *header,
                      const void *payload);
void rpi_windows_close(rp_comm *comm); /* it is destroyed: nobody serves them any more */

/* The pieces of a part, in this chunk. */
static inline rpi_walk rpi_chunk_walk(const rpi_chunk *chunk, int part, int level) {
    return rpi_cut_walk(&chunk->request->cut, chunk->index, part, level);
}

/* How a piece is encoded and decoded, but for its role and residual. */
static inline rp_encode_context rpi_piece_context(const rp_request *request,
                                                  const rpi_piece *piece) {
    return (rp_encode_context){.seed = request->seed,
                               .step = request->step,
                               .tensor = piece->run->tensor,
                               .first = piece->run->first + piece->offset};
}

/* actions.c: run an action. RP_PENDING: its link has no room. [driver] */
rp_status rpi_action_run(rpi_chunk *chunk, int action);
/* What this ENCODE encodes stays values: exact, and not overwritten (RPI_WIRE_VALUES). */
bool rpi_action_stays_values(const rpi_chunk *chunk, const rpi_action *encode);
/* core/request_names.c: bytes of payload of a SEND's or RECV's frame. */
size_t rpi_action_bytes(const rp_request *request, uint32_t chunk, const rpi_action *action);
/* A SEND or RECV of this chunk of a block that ended before it: no frame comes or goes, and the
 * action has nothing to do when its turn has come. */
bool rpi_action_is_void(const rp_request *request, uint32_t chunk, const rpi_action *action);

/* receive.c [driver]; true: something moved */
bool rpi_receive(rpi_fabric *fabric, int rank); /* take what can be taken from a link */
bool rpi_set_aside(rpi_fabric *fabric);         /* copy what blocks links, before sleeping */
/* Of a chunk in which nothing runs: the other side may wait for a payload that it holds, and
 * this one for its own. */
void rpi_receive_unblock(rpi_chunk *chunk);
/* For a RECV that is due: the frame for it that was set aside. */
bool rpi_receive_aside(rpi_chunk *chunk, int action);
/* The chunk has started: what was set aside for it is its own. */
void rpi_receive_adopt(rpi_chunk *chunk);
/* The chunk is done: nothing more may have come for it; makes it known. */
void rpi_receive_check_empty(rpi_chunk *chunk);
/* The request was posted: what was set aside for it is compared. False: it disagrees. */
bool rpi_receive_compare(rp_request *request);
/* protocol/unexpected.c: what is set aside for an operation that has not begun with it; NULL:
 * nothing. */
rpi_aside *rpi_aside_find(const rp_comm *comm, int rank, uint64_t sequence);
rp_status rpi_aside_get(rp_comm *comm, int rank, uint64_t sequence, rpi_aside **out_aside);
void rpi_aside_clear(rp_comm *comm); /* drop what was set aside */
void rpi_receive_fail_mismatch(rp_request *request, int rank, const rpi_frame_header *header);
/* A frame of an operation that is over, or of none. Makes it known. */
rp_status rpi_receive_fail_finished(rp_comm *comm, int rank, const rpi_frame_header *header,
                                    const rp_request *request);
/* The operation was not posted here yet. */
bool rpi_receive_is_future(const rp_comm *comm, int rank, const rpi_frame_header *header);

/* agreement.c */
void rpi_request_sign(rp_request *request);
bool rpi_request_agrees(const rp_request *request, const rpi_frame_header *header);
/* Both posted the same but for the length of a block that one sends to the other. */
bool rpi_request_is_same(const rp_request *request, const rpi_frame_header *header);
/* Our number for the part that a frame carries (all-to-all: plan.h). */
int rpi_request_recv_part(const rp_request *request, const rpi_frame_header *header);
/* "all-reduce (max) of 1000 f32 with fp32"; what has blocks has no one count. */
const char *rpi_posted_text(const rpi_frame_header *header, char *text, size_t bytes);
/* "rank 1 posted all-reduce of 1000 f32 with q4:bucket=512, rank 0 ..." */
const char *rpi_disagreement_text(const rp_request *request, const rpi_frame_header *header,
                                  int rank, char *text, size_t bytes);

/* late_links.c [driver] */
/* Nothing has moved for `idle_ns`: who waits for a frame of a rank without a link calls it, and
 * so hears whether it is there. */
void rpi_links_call_late(rp_comm *comm, int64_t idle_ns);
int64_t rpi_links_next_ns(const rp_comm *comm); /* when to look */

/* deadline.c [driver] */
int64_t rpi_deadline_next_ns(const rp_comm *comm);
void rpi_deadline_check(rp_comm *comm);

/* progress_loop.c */
/* Drive or sleep until the request is done or the deadline has come; true: it is done. */
bool rpi_wait_until(rp_request *request, int64_t deadline_ns);
/* The same of its `enqueued`. */
bool rpi_wait_until_enqueued(rp_request *request, int64_t deadline_ns);
void rpi_drive_once(rp_comm *comm);      /* a pass, when the drive is free; never blocks */
void rpi_drive_take(rpi_fabric *fabric); /* waits for it; also from a progress thread */
void rpi_drive_give(rpi_fabric *fabric);
void rpi_drive_hand_on(rpi_fabric *fabric); /* the same under the lock */
void rpi_drive_wake(rpi_fabric *fabric);
/* Under the lock, which it releases meanwhile, when nobody drives: until there is nothing more
 * to do, or somebody wants the drive. */
void rpi_drive_for_nobody(rpi_fabric *fabric);

/* calls/wait.c */
/* Around the start of a blocking form, which leaves the progress thread asleep: end waits for
 * *request when `posted` is RP_OK, and frees it. */
rp_status rpi_blocking_end(rp_comm *comm, rp_status posted, rp_request **request);

/* progress_thread.c */
rp_status rpi_progress_thread_start(rpi_fabric *fabric);
void rpi_progress_thread_stop(rpi_fabric *fabric);
/* Under the lock, when the drive may have become the progress thread's. */
void rpi_progress_thread_offer(rpi_fabric *fabric);
bool rpi_fabric_has_work(const rpi_fabric *fabric); /* under the lock */

#endif
