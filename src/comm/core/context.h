/* What the communicators of one process and store have in common: links, the control
 * connection, progress and the memory for frames. A communicator is some of its ranks with an
 * id, an epoch and numbers of its own; making one opens nothing.
 *
 * The ranks of a context are those of the communicator it was made for, the world.
 *
 * Which communicator a frame is of. The world's frames say communicator 0 and the epoch of its
 * membership. Those of a communicator that is made of another say who has numbered it, by one
 * more than its rank in the context, and its number there: the first of the members' list takes
 * the next number of a counter of its own, which only rises, and tells the other members
 * (RPI_FRAME_NUMBER), with the name and the members that they know it by:
 *
 *      the first member                       another member
 *        takes a number, opens it               is in the list of those that wait for one
 *        | RPI_FRAME_NUMBER ------------------> a number that is offered
 *        |                                        | name and members are those of one that
 *        |                                        | waits: it is opened under that number
 *        v                                        v
 *      the first operation, a barrier: who comes out of it knows that all have opened it
 *
 * Proof that no two communicators that are ever open in one context have the same pair of
 * numberer and number: a process numbers as the one rank of the context that it is, and takes
 * no number twice, whatever becomes of the making it was taken for. A making that fails has
 * cost a number and nothing else; whoever tries again takes another. Who is refused before a
 * number is asked for has said nothing to anybody. No hash and no count of another rank has a
 * part in it, and names and members are compared as they are. Which making a member's call
 * belongs to follows from the order of the numberer's, since offers come in that order:
 * communicators of the same ranks and name are made in the same order on all members. An offer
 * whose numberer says that the making has failed is taken back, so that a later call meets a
 * later try.
 *
 * Lists of communicators (rp_comm_groups()) are numbered by the first rank of the parent, which
 * need not be a member, from a second counter: their frames say the number of ranks more. All
 * ranks of the parent hear these numbers in its own operations before a frame of them exists.
 *
 *      a frame at the head of a link
 *        | its communicator is open here ---------------> it is received there (receive.c)
 *        |
 *        | its numberer has not told of it yet, or has
 *        | and it is not opened yet; the frame is of its
 *        | first barrier, or says that a rank has left -> kept, header alone (rpi_unopened),
 *        |                                                until it is opened, or taken back
 *        | its numberer has told of it, or of a later
 *        | one: it was closed here ---------------------> dropped
 *        |
 *        | neither -------------------------------------> all that have this rank fail
 *
 * A numberer's offers come on one link, in the order of their numbers; so what lies before the
 * last of them, and is neither offered nor open, is over. Nothing is remembered of it. */
#ifndef RPI_COMM_CONTEXT_H
#define RPI_COMM_CONTEXT_H

#include "comm/core/number_index.h"
#include "comm/core/urgency.h"
#include "net/bytes/frame.h"
#include "net/control/control.h"
#include "net/world/join.h"
#include "net/world/mesh.h"
#include "plan/cost.h"
#include "redpoll/comm.h"

#include <pthread.h>
#include <stdatomic.h>

/* Memory for one frame: kept frames, and encodings with more than one reader. */
enum { RPI_FRAME_BUFFER_SIZES = 45 };
struct rpi_frame_buffer;
struct rpi_chunk;

/* The picture is in connections.c. */
typedef enum rpi_connection_state {
    RPI_CONNECTION_NONE,   /* nobody has asked for a link yet, or it is this rank itself */
    RPI_CONNECTION_CALLED, /* the link is on its way */
    RPI_CONNECTION_MADE,   /* `link` is there */
    RPI_CONNECTION_BROKEN, /* `broken` says why; `link` is there if it was made before */
} rpi_connection_state;

/* Our side of the link to one rank of the context. [progress] */
typedef struct rpi_connection {
    struct rpi_context *context;
    rpi_connection_state state;
    rpi_link *link;
    rp_status broken; /* the failure of the link; RP_OK while it is usable */
    char reason[200];
    const void *head; /* the frame at the head of the link, checked; NULL: none */
    size_t head_bytes;
    const void *payload;      /* of it: behind its header, or in a buffer of its sender; NULL:
                                 it was written into one of ours */
    rpi_frame_header header;  /* its header */
    rp_comm *comm;            /* whose frame it is */
    int64_t head_ns;          /* when it came to the head, */
    uint64_t head_iteration;  /* and in which iteration */
    struct rpi_chunk *holder; /* the encoded slot whose bytes are the head; NULL: the head waits
                                 to be taken */
    int held_slot;
    bool full,
        bulk_full; /* reserve() had no room in this iteration, for anything or for bulk */
    /* The last number that this rank has used for a single communicator, as far as it has told
     * us, and the last for a list. In the own rank's connection: the numbers that it gave. */
    uint32_t offered, listed;
} rpi_connection;

/* A number offered for a communicator of these members and this name, which is not open here.
 */
typedef struct rpi_offer {
    struct rpi_offer *next;
    uint32_t numberer, number; /* as in a frame's communicator and epoch */
    size_t bytes;
    unsigned char identity[];
} rpi_offer;

/* What frames of the world have instead of a numberer. */
enum { RPI_WORLD_NUMBERER = 0 };

/* A frame of a communicator that is not open here yet: only a header. */
typedef struct rpi_unopened {
    struct rpi_unopened *next;
    int rank; /* of the context */
    rpi_frame_header header;
} rpi_unopened;

/* Says that this rank has left a communicator because another rank has died. It is kept for
 * members to which there is no link yet; they are told first if one is made. */
typedef struct rpi_fin {
    struct rpi_fin *next;
    rpi_frame_header header;
    rpi_rank_set untold; /* ranks of the context */
    int count;           /* of them */
} rpi_fin;

/* Who owns progress, one thread at a time: progress_owner.c draws the steps. */
typedef enum rpi_progress_owner {
    RPI_OWNER_NONE,
    RPI_OWNER_WAITER, /* a caller, until its wait is over */
    RPI_OWNER_LOOK,   /* a caller, for one iteration */
    RPI_OWNER_THREAD, /* the progress thread, until another thread wants it */
    RPI_OWNER_GUEST,  /* a thread that changes what the owner owns: communicators, windows */
} rpi_progress_owner;

typedef struct rpi_context {
    int rank, world;
    rpi_mesh *mesh;       /* NULL in a world of one */
    rpi_control *control; /* NULL in a world of one */
    rpi_join *join;       /* of rp_comm_join(); else NULL */
    rp_memory memory;     /* chunks are cut for this; on all ranks alike */
    rpi_cost_model links; /* the costs of links, for the choice of algorithms; on all ranks
                           * alike */
    bool failed;          /* [progress] this rank has left a communicator after a failure */
    rpi_connection *connections; /* [world] [progress] */
    rpi_rank_set polled;         /* links that every iteration examines: transport.h, ready() */
    rpi_rank_set heads;          /* [progress] links with a frame at the head */
    int queued[RPI_URGENCIES];   /* [progress] operations of all queues, by urgency */
    bool company;                /* [progress] several communicators move, or did recently */
    int64_t company_ns;          /* [progress] until then, as far as is known; 0: not */
    bool any_full;               /* [progress] some connection is */
    int breaks,
        breaks_seen; /* [progress] links that have failed; and when the last iteration began */
    uint64_t iterations; /* [progress] so far */

    pthread_mutex_t lock;
    pthread_cond_t changed;     /* for waiters: progress has no owner, a request is done */
    pthread_cond_t work;        /* for the progress thread: progress is its own */
    int wake_fd;                /* wakes a sleeping progress owner */
    rpi_progress_owner owner;   /* [lock] of progress: progress_owner.c */
    atomic_int yield_requested; /* the progress thread is to release progress */
    atomic_int acquirers;       /* threads that need it for a moment: waiters release it, too */
    atomic_bool asleep;         /* the progress owner sleeps, or is about to */
    atomic_bool posted;         /* `inboxes` is not empty */
    rp_comm *inboxes;           /* [lock] communicators whose inbox nobody has looked into */
    atomic_int windows;         /* into which neighbours may write at any time: always served */
    int in_flight;         /* [lock] requests posted and not complete, of all communicators */
    int64_t busy_since_ns; /* [lock] */

    rp_comm *comms;                /* [progress] all that are open */
    rp_comm *active, **active_end; /* [progress] those that an iteration examines */
    rpi_index open;                /* [progress] rp_comm, by id and epoch */
    rpi_unopened *unopened;        /* [progress] in the order of arrival */
    int unopened_count;            /* [progress] */
    rpi_offer *offers;             /* [progress] in the order of arrival */
    int offer_count;               /* [progress] */
    size_t offer_bytes;            /* [progress] of identities in these */
    rpi_offer *declined;           /* [progress] given up here before they had a number */
    int unnumbered;                /* [progress] our communicators that wait for a number */
    uint32_t unnumbered_so_far;    /* [lock] */
    struct rp_world *view_world;   /* the view, by its number, whose members the links join;
                                    * else NULL */
    uint32_t view;
    uint32_t world_epoch; /* of the communicator that was made with the links */
    bool has_had_world;   /* [progress] it is open, or was */
    rpi_fin *fins;        /* [progress] ends that some members are still to be told */
    bool fins_late;       /* [progress] some of them found no room on a link */
    struct rpi_frame_buffer *buffers[RPI_FRAME_BUFFER_SIZES]; /* [progress] free ones */
    size_t idle_buffer_bytes;                                 /* [progress] in these */
    unsigned char *scratch; /* [progress] 16-bit copies of accumulators for a codec */
    size_t scratch_room;
    struct rpi_device *devices; /* [lock] GPUs that operations have used; only added to */
    atomic_bool has_devices;    /* there are some */
    uint64_t moved;             /* [progress] bytes, to notice progress */
    int64_t owned_ns;           /* [progress] when somebody last made progress */
    int64_t trickled_ns;  /* [progress] when bytes last moved though no frame was complete */
    int64_t gap_after_ns; /* [progress] idle for this long, ranks report the frame for which
                           * they wait */
    bool oversubscribed;  /* over RPI_OVERSUBSCRIBED ranks for each core of this host: waits
                             sleep */
    int oversubscribed_count; /* [progress] waits in a row during which another program kept the
                               * core */
    int oversubscribed_waits; /* [progress] so many of the next waits sleep at once */

    pthread_t thread;
    bool has_thread;
    bool stop, thread_sleeps; /* [lock] */
    bool has_new_work;        /* [lock] work since the progress thread last looked */
} rpi_context;

/* The mesh and the control connection are made: the connections get the links that exist. */
void rpi_context_connect(rpi_context *context);
/* The link to that other rank; NULL: there is none yet, and it is called. [progress] */
rpi_link *rpi_connection_link(rpi_connection *connection);
/* Takes links that were made since; true: there were some. [progress] */
bool rpi_context_connect_new_links(rpi_context *context);
/* This rank leaves a communicator: members without a link are told when they get one.
 * [progress] */
void rpi_context_note_fin(rp_comm *comm, const rpi_frame_header *header);
/* Iterations examine it until it has no work. [progress] */
void rpi_context_activate(rp_comm *comm);
/* The link has failed: all communicators that have the rank are told. [progress] */
void rpi_context_break(rpi_context *context, int rank, rp_status status);
/* A rank has sent something impossible: its link cannot be used any more. [progress] */
void rpi_context_fail_rank(rpi_context *context, int rank, rp_status status,
                           const char *message);
/* Send only a header to the rank, whose link exists. RP_PENDING: there is no room. [progress]
 */
rp_status rpi_connection_send_header(rpi_connection *connection,
                                     const rpi_frame_header *header);
/* Release the frame at the head. [progress] */
void rpi_connection_release(rpi_connection *connection);
/* Its link had no room in this iteration for frames of this `traffic`. [progress] */
static inline void rpi_connection_note_full(rpi_connection *connection) {
    bool bulk = connection->link->traffic == RPI_TRAFFIC_BULK;
    *(bulk ? &connection->bulk_full : &connection->full) = connection->context->any_full = true;
}
/* It has had none before in this iteration. [progress] */
static inline bool rpi_connection_was_full(const rpi_connection *connection) {
    return connection->full ||
           (connection->bulk_full && connection->link->traffic == RPI_TRAFFIC_BULK);
}

void rpi_fin_free(rpi_fin *fin);

#endif
