/* Work in a second process, so that whichever of the two is killed, the other one ends all that
 * was started.
 *
 *     this process: passes signals on, waits  ---- a pipe ---->  the second: starts ranks
 *
 * Both adopt what loses its parent (descendants.h). The end of the first closes the pipe; the
 * second then ends its descendants and itself, whatever it is doing. The end of the second
 * hands its descendants to the first. The second has a process group of its own, so that a
 * signal to the first one's (kill -9 %1) does not reach both. */
#ifndef RPI_CLI_GUARD_H
#define RPI_CLI_GUARD_H

#include "base/status.h"

#include <stdbool.h>

typedef struct rpi_guard_options {
    const char *name; /* for messages: "redpoll run" */
    int signals;      /* signalfd of what is blocked, and passed on to the work */
    double end_s;     /* when a signal has told the work to end (all but SIGUSR1 and 2): so long
                         after, its process is killed, whatever holds it */
    int caller;       /* a descriptor whose other end is that of who wants the work; -1: none */
    int (*work)(void *context); /* in the second process; its exit code */
    void *context;
} rpi_guard_options;

/* The time that the second process has after a second such signal, and when the caller has
 * gone. */
#define RPI_GUARD_AGAIN_S 10.0

/* In the second process: has the first one gone? Descendants are killed for that, then. */
bool rpi_guard_is_orphan(void);

/* Returns the work's exit code; 128 + signal, having said so, when its process was killed. No
 * descendant is left then. Call it in a process with one thread and no children. */
int rpi_guard(const rpi_guard_options *options);

#endif
