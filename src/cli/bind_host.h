/* The processors of a host to which ranks can be bound (bind_ranks.h). */
#ifndef RPI_CLI_BIND_HOST_H
#define RPI_CLI_BIND_HOST_H

#include <sched.h>
#include <stdbool.h>

typedef struct rpi_processor {
    int number, core, socket, node; /* a core's number counts within its socket; node -1: not
                                       known */
} rpi_processor;

/* What ranks of this host can be bound to. */
typedef struct rpi_bind_host {
    rpi_processor processors[CPU_SETSIZE]; /* neighbours in the list are near each other */
    int count;
    bool is_made_up; /* of HWLOC_SYNTHETIC and the like: no processors that one can run on */
} rpi_bind_host;

#endif
