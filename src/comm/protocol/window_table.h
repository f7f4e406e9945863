/* Windows: slots that neighbours write into, served by whoever makes progress.
 *
 *   window.c         create, free; window_agreement.c: what all ranks must agree on
 *   window_calls.c   what the owner calls: put, accumulate, get, update
 *   window_waits.c   waiting for operations; window_mutexes.c: mutexes
 *   window_serve.c   [progress] one iteration: what is to be sent
 *   window_receive.c [progress] what has come
 *   window_values.c  loops over elements
 *
 *   owner of i                          progress, i          wire       progress, j
 *   put, accumulate
 *     values --------> pending
 *     (merged while there is one)  \
 *                       it is free  `--> sending ----- message, in slices ----> staging
 *                                        (one at a time) <--- taken ---.          | whole
 *                                           |                           `------ slot, p,
 * version v                                     (at once) done: who waits is woken
 *
 * One message of an edge is under way at a time, so that its receiver has a place for all of
 * it: what stands at the head of a link is always used up at once, and memory is bounded. A get
 * is a control frame; its answer is a message like others.
 *
 * Three kinds of state: [window] under the window's lock, which its owner holds while it adds
 * vectors up: the progress owner only tries it, notes that it `missed`, and is called back;
 * [lock] under the context's; [progress]. */
#ifndef RPI_COMM_WINDOW_TABLE_H
#define RPI_COMM_WINDOW_TABLE_H

#include "comm/core/communicator.h"
#include "redpoll/window.h"

/* The `operation` of a frame of kind RPI_FRAME_WINDOW. */
typedef enum rpi_window_frame {
    RPI_WINDOW_PUSH = 1, /* a slice of a push for a slot */
    RPI_WINDOW_ANSWER,   /* a slice of a requested vector */
    RPI_WINDOW_TAKEN,    /* the message of that number has been applied */
    RPI_WINDOW_GET,      /* send the vector as it is */
    RPI_WINDOW_LOCK,     /* asks for the receiver's mutex for the sender */
    RPI_WINDOW_LOCKED,   /* it is the sender's of LOCK */
    RPI_WINDOW_UNLOCK,   /* no more */
} rpi_window_frame;

/* In `round`: not while the receiver holds its own mutex for the sender. */
enum { RPI_WINDOW_MUTEX = 1 };

/* Before the encoding of the first slice of a message. */
typedef struct rpi_window_lead {
    uint32_t flags, puts; /* RPI_PUSH_...; the number of puts in it */
    double p;
    uint64_t asked; /* of an answer: to all gets up to this one */
} rpi_window_lead;
enum { RPI_PUSH_REPLACES = 1, RPI_PUSH_HAS_P = 2, RPI_PUSH_REPLACES_P = 4, RPI_PUSH_FLAGS = 7 };

/* What a push does to a slot: several pushes combined in one. */
typedef struct rpi_window_push {
    bool is_there, mutex;
    rpi_window_lead lead;
    uint64_t last; /* the newest of the pushes */
    void *values;  /* NULL until they are needed first */
} rpi_window_push;

/* To a destination. */
typedef struct rpi_window_out {
    int rank;
    rpi_window_push pending; /* [window] */
    uint64_t posted;         /* [window] pushes so far */
    atomic_bool is_dirty;    /* there is something pending */
    uint64_t done;           /* [lock] pushes that have been applied there */
    rpi_window_push sending; /* [progress] */
    bool is_busy, answers;   /* [progress] something is under way; it is an answer */
    uint32_t next_slice;     /* [progress] */
    uint64_t messages;       /* [progress] begun so far */
    uint64_t asked;          /* [progress] by a get that has no answer yet; 0: none */
    bool asked_mutex;        /* [progress] */
    bool answers_next;       /* [progress] a push has passed the get: no second one does */
    float *residual; /* [progress] residual of accumulates; NULL if the codec is exact */
} rpi_window_out;

/* A message that comes. */
typedef struct rpi_window_arrival {
    bool is_there, is_whole, answers, mutex;
    rpi_window_lead lead;
    uint32_t next_slice;
} rpi_window_arrival;

/* From a source. */
typedef struct rpi_window_in {
    int rank;
    void *slot;                 /* [window] */
    double p;                   /* [window] */
    uint64_t version;           /* [window] */
    uint64_t wanted, got;       /* [lock] gets so far, and those with an answer */
    double weight;              /* [lock] of the latest */
    bool wants_mutex;           /* [lock] */
    void *staging;              /* [progress] NULL until a message has come */
    rpi_window_arrival arrival; /* [progress] */
    uint64_t taken;             /* [progress] messages applied */
    bool taken_due;             /* [progress] its sender is to be sent "taken" */
    uint64_t asked;             /* [progress] gets that it has received */
    double asked_weight;        /* [progress] */
} rpi_window_in;

typedef enum rpi_cell_holder { RPI_CELL_FREE, RPI_CELL_OWNER, RPI_CELL_PEER } rpi_cell_holder;

/* This rank's mutex for one other. [lock] */
typedef struct rpi_window_cell {
    rpi_cell_holder holder;
    bool owner_waits, peer_waits, told_due; /* told: the peer that it has it */
} rpi_window_cell;

typedef enum rpi_claim_state {
    RPI_CLAIM_NONE,
    RPI_CLAIM_WANTED, /* the owner is to be asked */
    RPI_CLAIM_ASKED,
    RPI_CLAIM_HELD,
} rpi_claim_state;

/* What this rank has of another's mutex for it. [lock] */
typedef struct rpi_window_claim {
    rpi_claim_state state;
    bool abandoned, unlock_due; /* abandoned: nobody waits any more, so release it */
} rpi_window_claim;

struct rp_window {
    rp_window *next; /* [progress] in the communicator's list */
    rp_comm *comm;   /* NULL: it was destroyed */
    char *name;
    uint32_t number; /* in the communicator, from 1: the same on all ranks */
    uint32_t signature;
    unsigned char *data;
    size_t count, element_bytes;
    rp_dtype dtype;
    rp_codec codec;
    bool is_lossy;
    size_t slice;    /* elements of a frame, but for the last */
    uint32_t slices; /* of a message; 1 at least */
    pthread_mutex_t lock;
    atomic_bool missed;   /* the progress owner found the lock held */
    double p;             /* [window] */
    bool follows_p;       /* [window] */
    rpi_window_in *ins;   /* [in_count] by rank */
    rpi_window_out *outs; /* [out_count] by rank */
    int in_count, out_count;
    rpi_window_cell *cells;   /* [world] [lock] */
    rpi_window_claim *claims; /* [world] [lock] */
    atomic_bool control_due;  /* of mutexes */
    atomic_bool gets_due;     /* a source may have to be asked */
    rp_status *gone;          /* [world] [lock] why a rank does not answer any more; RP_OK: it
                               * does */
    rp_window_operation *operations; /* [lock] under way, and wanted */
};

typedef struct rpi_window_part {
    int edge; /* of outs, or of ins */
    uint64_t number;
} rpi_window_part;

struct rp_window_operation {
    rp_window_operation *next, **at; /* in the window's list */
    rp_window *window;
    bool gets;
    size_t count;
    rpi_window_part parts[];
};

/* window_table.c */
int rpi_window_find_in(const rp_window *window, int rank);  /* -1: no source */
int rpi_window_find_out(const rp_window *window, int rank); /* -1: no destination */

/* window_serve.c [progress] */
rpi_frame_header rpi_window_header(const rp_window *window, rpi_window_frame frame,
                                   uint64_t number);
rp_encode_context rpi_window_context(const rp_window *window, uint64_t message, size_t first);
/* The elements of a slice, and its offset. */
size_t rpi_window_slice(const rp_window *window, uint32_t slice, size_t *out_first);
/* A complete message has come: it is applied, or kept for now. True: applied. */
bool rpi_window_apply(rp_window *window, rpi_window_in *in);
/* The owner does not hold its mutex for this rank. */
bool rpi_window_is_free_of(rp_window *window, int rank);

/* window_receive.c [progress] A frame from a rank, with any content. RP_CORRUPT, RP_MISMATCH:
 * impossible, and the communicator is to fail. */
rp_status rpi_window_receive(rp_window *window, int rank, const rpi_frame_header *header,
                             const void *payload);

/* window_values.c: dtypes of windows; weights of integers are whole numbers, and sums wrap. */
bool rpi_window_takes_dtype(rp_dtype dtype);
void rpi_window_scale(const void *from, rp_dtype dtype, double weight, size_t count,
                      void *into); /* from may be into */
void rpi_window_add_scaled(const void *from, rp_dtype dtype, double weight, size_t count,
                           void *into);
void rpi_window_divide(void *values, rp_dtype dtype, int64_t by, size_t count);

/* ---- window_serve.c, window_receive.c [progress] ---- */

bool rpi_windows_serve(
    rp_comm *comm); /* send and apply what is possible; true: something moved */
void rpi_windows_receive(rp_comm *comm, int rank, const rpi_frame_header *header,
                         const void *payload);
void rpi_windows_close(rp_comm *comm); /* it is destroyed: nobody serves them any more */

#endif
