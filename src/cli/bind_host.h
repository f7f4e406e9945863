/* The processors of a host to which ranks can be bound (bind_ranks.h). */
#ifndef RPI_CLI_BIND_HOST_H
#define RPI_CLI_BIND_HOST_H

#include <sched.h>
#include <stdbool.h>

typedef struct rpi_processor {
    /* a core's number counts within its socket; node -1: unknown */
    int number, core, socket, node;
} rpi_processor;

/* The processors of this host to which ranks can be bound. */
typedef struct rpi_bind_host {
    /* processors that are near each other are near each other here */
    rpi_processor processors[CPU_SETSIZE];
    int count;
    bool is_made_up; /* from HWLOC_SYNTHETIC and the like: these processors do not exist */
} rpi_bind_host;

#endif
