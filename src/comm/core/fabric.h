/* What the communicators of one process and store have in common: links, the control
 * connection, the drive and the memory for frames. A communicator is some of its ranks with an
 * id, an epoch and numbers of its own; making one opens nothing.
 *
 * The ranks of a fabric are those of the communicator it was made for, the world.
 *
 * Which communicator a frame is of. The world's frames say communicator 0 and the epoch of its
 * membership. Those of a communicator that is made of another say who has numbered it, by one
 * more than its rank in the fabric, and its number there: the first of the members' list takes
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
 * Proof that no two communicators that are ever open in one fabric have the same pair of
 * numberer and number: a process numbers as the one rank of the fabric that it is, and takes no
 * number twice, whatever becomes of the making it was taken for. A making that fails has cost a
 * number and nothing else; whoever tries again takes another. Who is refused before a number is
 * asked for has said nothing to anybody. No hash and no count of another rank has a part in it,
 * and names and members are compared as they are. Which making a member's call belongs to
 * follows from the order of the numberer's, since offers come in that order: communicators of
 * the same ranks and name are made in the same order on all members. An offer whose numberer
 * says that the making has failed is taken back, so that a later call meets a later try.
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
 *        | first barrier, or says that a rank has left -> kept, header alone (rpi_early),
 *        |                                                until it is opened, or taken back
 *        | its numberer has told of it, or of a later
 *        | one: it was closed here ---------------------> dropped
 *        |
 *        | neither -------------------------------------> all that have this rank fail
 *
 * A numberer's offers come on one link, in the order of their numbers; so what lies before the
 * last of them, and is neither offered nor open, is over. Nothing is remembered of it. */
#ifndef RPI_COMM_FABRIC_H
#define RPI_COMM_FABRIC_H

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
enum { RPI_BLOCK_SIZES = 45 };
struct rpi_block;
struct rpi_chunk;

/* Our side of the link to one rank of the fabric. [driver] */
typedef struct rpi_port {
    struct rpi_fabric *fabric;
    rpi_link *link;   /* NULL: of this rank itself, or not connected yet */
    bool called;      /* the link is on its way, or there */
    rp_status broken; /* what the link returned when it failed; RP_OK while it is good */
    char reason[200];
    const void *head; /* the frame at the head of the link, checked; NULL: none */
    size_t head_bytes;
    const void *payload;     /* of it: behind its header, or in a buffer of its sender; NULL:
                                it was written into one of ours */
    rpi_frame_header header; /* its header */
    rp_comm *comm;           /* whose frame it is */
    int64_t head_ns;         /* when it came to the head, */
    uint64_t head_pass;      /* and in which pass */
    struct rpi_chunk
        *holder; /* whose wire slot the head is; NULL: the head waits to be taken */
    int held_wire;
    bool full, bulk_full; /* lend() had no room in this pass, for anything or for bulk */
    /* The last numbers that it has given: of single communicators, as far as it has told us of
     * them, and of lists. Of this rank itself: those that it gave. */
    uint32_t offered, listed;
} rpi_port;

/* A number that a communicator of these members and this name has, which is not open here. */
typedef struct rpi_offer {
    struct rpi_offer *next;
    uint32_t numberer, number; /* as in a frame's communicator and epoch */
    size_t bytes;
    unsigned char identity[];
} rpi_offer;

/* What frames of the world say instead of a numberer. */
enum { RPI_WORLD_NUMBERER = 0 };

/* A frame of a communicator that is not open here yet: a header alone. */
typedef struct rpi_early {
    struct rpi_early *next;
    int rank; /* of the fabric */
    rpi_frame_header header;
} rpi_early;

/* That this rank has left a communicator for another's death: for members that have no link
 * from here yet, and hear it first should one come to be. */
typedef struct rpi_left {
    struct rpi_left *next;
    rpi_frame_header header;
    rpi_rank_set untold; /* ranks of the fabric */
    int count;           /* of them */
} rpi_left;

typedef struct rpi_fabric {
    int rank, world;
    rpi_mesh *mesh;       /* NULL in a world of one */
    rpi_control *control; /* NULL in a world of one */
    rpi_join *join;       /* of rp_comm_join(); else NULL */
    rpi_cost_model links; /* what they cost, for the choice of algorithms; on all ranks alike */
    bool failed;          /* [driver] a communicator has left after a failure */
    rpi_port *ports;      /* [world] [driver] */
    rpi_rank_set polled;  /* links that are looked at in every pass: transport.h, news */
    rpi_rank_set heads;   /* [driver] links with a frame at the head */
    int queued[RPI_URGENCIES]; /* [driver] operations of all queues, by urgency */
    bool company;              /* [driver] several communicators move, or did lately */
    int64_t company_ns;        /* [driver] until then, as far as is known; 0: not */
    bool any_full;             /* [driver] some port is */
    int breaks, judged; /* [driver] links that have failed; and when the last pass began */
    uint64_t passes;    /* [driver] so far */

    pthread_mutex_t lock;
    pthread_cond_t changed; /* for waiters: the drive is free, a request is done */
    pthread_cond_t work;    /* for the progress thread: the drive is its own */
    int wake_fd;            /* wakes a sleeping driver */
    bool driving;           /* [lock] somebody has the drive */
    atomic_int wanted;      /* the progress thread shall give the drive up */
    atomic_int takers;      /* threads that need it for a moment: waiters give it up, too */
    atomic_bool asleep;     /* the driver sleeps, or is about to */
    atomic_bool posted;     /* `callers` is not empty */
    rp_comm *callers;       /* [lock] with an inbox that the driver has not seen */
    atomic_int windows;     /* that neighbours may write into at any time: always driven */
    int in_flight;          /* [lock] requests posted and not complete, of all communicators */
    int64_t busy_since_ns;  /* [lock] */

    rp_comm *comms;                /* [driver] all that are open */
    rp_comm *active, **active_end; /* [driver] those a pass looks at */
    rpi_index open;                /* [driver] rp_comm, by id and epoch */
    rpi_early *early;              /* [driver] in the order of arrival */
    int early_count;               /* [driver] */
    rpi_offer *offers;             /* [driver] in the order of arrival */
    int offer_count;               /* [driver] */
    size_t offer_bytes;            /* [driver] of identities in these */
    rpi_offer *declined;           /* [driver] given up here before they had a number */
    int unnumbered;                /* [driver] communicators of ours that wait for a number */
    uint32_t unnumbered_so_far;    /* [lock] */
    uint32_t world_epoch;          /* of the communicator that was made with the links */
    bool has_had_world;            /* [driver] it is open, or was */
    rpi_left *left;                /* [driver] what some have still to hear */
    bool left_late;                /* [driver] some of it found no room on a link */
    struct rpi_block *blocks[RPI_BLOCK_SIZES]; /* [driver] free ones */
    size_t idle_block_bytes;                   /* [driver] in these */
    unsigned char *scratch; /* [driver] 16-bit copies of accumulators on their way to a codec */
    size_t scratch_room;
    struct rpi_device *devices; /* [lock] GPUs that operations have used; only added to */
    atomic_bool has_devices;    /* there are some */
    uint64_t moved;             /* [driver] bytes, to see progress by */
    int64_t driven_ns;          /* [driver] when somebody last drove */
    int64_t trickled_ns;  /* [driver] when bytes last moved though no frame was complete */
    int64_t gap_after_ns; /* [driver] idle for so long, ranks say for which frame they wait */
    bool crowded;         /* over RPI_CROWD ranks for each core of this host: waits sleep */
    int contentions, contended_waits; /* [driver] in a row; how many sleep at once */

    pthread_t thread;
    bool has_thread;
    bool stop, thread_sleeps; /* [lock] */
    bool offered;             /* [lock] work, since the progress thread last looked */
} rpi_fabric;

/* The mesh and the control connection are there: links are the ports', those that stand. */
void rpi_fabric_connect(rpi_fabric *fabric);
/* The link to this rank, which is another; NULL: there is none yet, and it is called. [driver]
 */
rpi_link *rpi_port_link(rpi_port *port);
/* Links that have come since; true: there were some. [driver] */
bool rpi_fabric_take_links(rpi_fabric *fabric);
/* This rank leaves a communicator: members without a link hear it when they get one. [driver]
 */
void rpi_fabric_note_left(rp_comm *comm, const rpi_frame_header *header);
/* Passes look at it until it has nothing to do. [driver] */
void rpi_fabric_activate(rp_comm *comm);
/* The link has failed: all communicators that have the rank know. [driver] */
void rpi_fabric_break(rpi_fabric *fabric, int rank, rp_status status);
/* What came from a rank cannot be: its link is of no use any more. [driver] */
void rpi_fabric_fail_rank(rpi_fabric *fabric, int rank, rp_status status, const char *message);
/* Send a header alone to the rank, whose link is there. RP_PENDING: it has no room. [driver] */
rp_status rpi_port_tell(rpi_port *port, const rpi_frame_header *header);
/* The frame at the head is done with. [driver] */
void rpi_port_release(rpi_port *port);
/* Its link had no room in this pass for what its `traffic` says. [driver] */
static inline void rpi_port_is_full(rpi_port *port) {
    bool bulk = port->link->traffic == RPI_TRAFFIC_BULK;
    *(bulk ? &port->bulk_full : &port->full) = port->fabric->any_full = true;
}
/* It has had none before in this pass. [driver] */
static inline bool rpi_port_was_full(const rpi_port *port) {
    return port->full || (port->bulk_full && port->link->traffic == RPI_TRAFFIC_BULK);
}

void rpi_left_free(rpi_left *left);

#endif
