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

typedef struct rpi_guard_options {
    const char *name;           /* for messages: "redpoll run" */
    int signals;                /* signalfd of what is blocked, and passed on to the work */
    int (*work)(void *context); /* in the second process; its exit code */
    void *context;
} rpi_guard_options;

/* Returns the work's exit code; 128 + signal, having said so, when its process was killed. No
 * descendant is left then. Call it in a process with one thread and no children. */
int rpi_guard(const rpi_guard_options *options);

#endif
