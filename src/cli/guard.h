/* Runs work in a second process, so that if either of the two is killed the other one ends
 * everything that was started.
 *
 *     this process: passes signals on, waits  ---- a pipe ---->  the second: starts ranks
 *
 * Both adopt processes that lose their parent (descendants.h). When the first one ends the pipe
 * is closed, and the second ends its descendants and itself, whatever it is doing. When the
 * second one ends the first adopts its descendants. The second has a process group of its own,
 * so that a signal to the first one's group (kill -9 %1) does not reach both. */
#ifndef RPI_CLI_GUARD_H
#define RPI_CLI_GUARD_H

#include "base/status.h"

#include <stdbool.h>

typedef struct rpi_guard_options {
    const char *name; /* for messages: "redpoll run" */
    int signals;      /* a signalfd of blocked signals, which are passed on to the work */
    /* after a signal has told the work to end (any but SIGUSR1 and 2), its process is killed
     * after this time */
    double end_s;
    int caller; /* a descriptor whose other end belongs to the caller of the work; -1: none */
    int (*work)(void *context); /* in the second process; its exit code */
    void *context;
} rpi_guard_options;

/* The time that the second process has after a second such signal, and after the caller has
 * gone. */
#define RPI_GUARD_AGAIN_S 10.0

/* In the second process: has the first one gone? Descendants are then killed because of that.
 */
bool rpi_guard_is_orphan(void);

/* Returns the work's exit code; or 128 + signal, with a message, if its process was killed. No
 * descendant is left then. Call it in a process with one thread and no children. */
int rpi_guard(const rpi_guard_options *options);

#endif
