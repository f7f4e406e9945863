/* What the callers' side of the control connection (control.c) and its thread
 * (control_thread.c) share. */
#ifndef RPI_NET_CONTROL_STATE_H
#define RPI_NET_CONTROL_STATE_H

#include "net/control.h"
#include "net/control_line.h"
#include "net/secret.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

enum { RPI_CONTROL_HUB = 0 };

struct rpi_control {
    int rank, world;
    uint64_t session;
    rpi_secret secret;
    int64_t beat_ns, silence_ns, opened_ns;
    pthread_t thread;
    bool has_thread;
    int wake;      /* eventfd: look at the fields under the lock again */
    int failed_fd; /* eventfd: readable once failed */
    atomic_ullong sequence;
    atomic_ullong gap; /* 2^24 * step + rank + 1; 0: none */
    atomic_bool known; /* failed, for a look without the lock */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock. */
    int arrived;   /* hub: ranks that have come, */
    bool *present; /* [world] and which */
    bool welcome;  /* hub: open() lets them in; leaf: the hub has */
    bool failed, published, outbox_full, closing;
    rpi_failure failure, outbox;
    rpi_control_beat *beats; /* [world] */

    /* The thread's own. */
    int listener;
    rpi_control_line *lines; /* hub: ranks and strangers; leaf: lines[0] to the hub */
    int line_count;
    int *line_of; /* [world]: hub: a rank's line, -1 before it came */
    bool *fresh;  /* [world]: hub: a beat to pass on */
    bool let_in;  /* hub: WELCOME was sent */
    unsigned refusals;
    bool hub_left; /* leaf: nobody judges any more */
    bool accused;  /* leaf: `mine` waits for a verdict */
    rpi_failure suspect, mine;
    int64_t suspect_ns; /* when the suspect's death becomes the verdict; RPI_NEVER_NS: none */
    int64_t mine_ns;    /* when `mine` does */
    int64_t beat_at_ns, farewell_ns;
    struct pollfd *polls; /* [line_count + 2] */
};

/* Under the lock: this is the world's first failure. */
void rpi_control_keep(rpi_control *control, const rpi_failure *failure);
/* Make an eventfd readable. */
void rpi_control_set_flag(int fd);
/* The thread: hears callers and lines until the farewell is over. context: the rpi_control. */
void *rpi_control_run(void *context);

#endif
