/* What the two files of a connector share: connector.c, whose functions the progress owner
 * calls, and connector_thread.c, which makes connections. connector.h has a picture of a peer's
 * states. */
#ifndef RPI_NET_CONNECTOR_STATE_H
#define RPI_NET_CONNECTOR_STATE_H

#include "net/link/acceptor.h"
#include "net/link/call.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef struct rpi_connector rpi_connector; /* connector.h */

typedef enum rpi_peer_state {
    RPI_PEER_NONE,
    RPI_PEER_CALLING,
    RPI_PEER_ADDING,
    RPI_PEER_CALLED,
    RPI_PEER_UP,
    RPI_PEER_FAILED
} rpi_peer_state;

struct rpi_connector {
    rpi_hello self;
    rpi_call_maker maker;
    rpi_acceptor acceptor;
    int wake;            /* eventfd: the thread is to read `requested` and `closing` */
    int connected_event; /* eventfd: `connected` is not empty */
    pthread_t thread;
    bool has_thread;

    pthread_mutex_t lock;
    unsigned char *states;                /* [lock] [world] of rpi_peer_state */
    rpi_call *requested;                  /* [lock] not seen by the thread */
    rpi_call *connected, **connected_end; /* [lock] in the order in which they were made */
    bool closing;                         /* [lock] */
    atomic_bool any_connected;

    int slots;            /* world x streams: one for each connection of each link */
    rpi_call **calls;     /* [slots] [thread] */
    atomic_int *fds;      /* [slots] descriptors of the calls, for close_after_fork() */
    struct pollfd *polls; /* [1 + RPI_CALLERS + 1 + slots] [thread] */
    bool has_said;        /* [thread] why it can accept no caller */
    int64_t deaf_ns;      /* [thread] the listener is not polled until then */
};

/* The peer makes this transition. Under the lock. */
void rpi_connector_enter(rpi_connector *connector, int peer, rpi_peer_state next);
/* The thread; its context is the connector. */
void *rpi_connector_run(void *context);
/* For the acceptor, in the thread: a rank that fits calls; and takes its connection. */
rp_status rpi_connector_admit(void *context, int rank, int stream);
void rpi_connector_take(void *context, int rank, int stream, rpi_channel channel);

#endif
