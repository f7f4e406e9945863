/* Frames of a shaped link that have come, whether they are to be seen yet or not.
 *
 * The wrapped transport keeps the order of posting, in which an urgent frame stands behind bulk
 * that it has overtaken in the model. So bulk that is not to be seen yet is copied out of it:
 *
 *     wrapped transport    bulk 3 | urgent 2 | bulk 2 | bulk 1
 *                            |  what comes is looked at until it has to stay where it lies
 *     others               bulk 1, bulk 2                   each in order, shown when its time
 *     urgent               urgent 2, behind the frames      has come; what is urgent first, but
 *                          that had left before it          behind those */
#ifndef RPI_NET_ARRIVALS_H
#define RPI_NET_ARRIVALS_H

#include "net/bytes/sticky_error.h"
#include "net/shaped/link_shape.h"

/* Copies are made of bulk and of short frames; of at most this many frames of a link. */
enum { RPI_ARRIVALS = 8, RPI_ARRIVALS_SHORT_BYTES = 16 * 1024 };

typedef struct rpi_arrival {
    const unsigned char *frame;
    size_t bytes;
    int64_t start_ns;   /* its first byte left the sender */
    bool placed;        /* on the way in */
    int64_t visible_ns; /* its last byte arrives; once it has its place */
    uint64_t behind;    /* the number of other frames of its link that are seen before it */
    bool may_be_copied;
    unsigned char *copy; /* the copy; NULL: it is in the wrapped transport */
} rpi_arrival;

typedef struct rpi_arrival_queue {
    rpi_arrival at[RPI_ARRIVALS];
    uint32_t first, count;
} rpi_arrival_queue;

enum { RPI_ARRIVALS_OTHERS, RPI_ARRIVALS_URGENT, RPI_ARRIVALS_ORDERS };

/* Starts as zeros, except for the first two. */
typedef struct rpi_arrivals {
    int peer;           /* for messages */
    size_t frame_bytes; /* of the longest */
    rpi_arrival_queue queues[RPI_ARRIVALS_ORDERS];
    rpi_arrival *inside;     /* the one that is in the wrapped transport; NULL: none */
    rpi_arrival_queue *seen; /* the first of these that the caller looks at; NULL: at none */
    uint64_t released;       /* of frames that are not urgent, so far */
    unsigned char *spare[RPI_ARRIVALS_ORDERS * RPI_ARRIVALS]; /* memory for copies */
    int spares;
    rpi_sticky_error sticky; /* of the wrapped link: nothing more arrives */
} rpi_arrivals;

void rpi_arrivals_free(rpi_arrivals *arrivals); /* its copies */
/* Take note of frames that have arrived on the wrapped link; keeps a failure. */
void rpi_arrivals_learn(rpi_arrivals *arrivals, rpi_link *inner, int64_t now_ns);
bool rpi_arrivals_are_none(const rpi_arrivals *arrivals);
/* The first of this order that has no place on the way in yet; NULL: none. */
rpi_arrival *rpi_arrivals_unplaced(rpi_arrivals *arrivals, int order);
/* The frame that the caller sees, until it is released; NULL: none. */
const rpi_arrival *rpi_arrivals_look(rpi_arrivals *arrivals, int64_t now_ns);
/* Release the frame that the caller sees; returns its bytes, 0 if there is none. */
size_t rpi_arrivals_release(rpi_arrivals *arrivals, rpi_link *inner);
/* When the model makes the next frame visible; RPI_NEVER_NS: none. Frames that wait until
 * others are released do not count. */
int64_t rpi_arrivals_next_ns(const rpi_arrivals *arrivals, const rpi_nic *nic);

#endif
