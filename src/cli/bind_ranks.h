/* Which processors each rank of a host may use: redpoll run --bind-to. Memory follows, for the
 * kernel takes it from the NUMA node of the processor that touches it first. */
#ifndef RPI_CLI_BIND_RANKS_H
#define RPI_CLI_BIND_RANKS_H

#include "base/status.h"

#include <sched.h>

typedef enum rpi_binding {
    RPI_BIND_NONE,
    RPI_BIND_CORE,   /* cores of their own, with all hardware threads */
    RPI_BIND_SOCKET, /* the processors of one package, or of several where ranks are fewer */
    RPI_BIND_NUMA,   /* of one NUMA node, in the same way */
} rpi_binding;

typedef struct rpi_processor {
    int number, core, socket, node; /* a core's number counts within its socket */
} rpi_processor;

/* "none", "core", "socket" or "numa". */
rp_status rpi_binding_find(const char *name, rpi_binding *out_binding);
rp_status rpi_binding_check(const char *name);

/* Pure: the share of rank `rank` of `ranks`, over these processors. RP_INVALID: fewer cores
 * than ranks; nothing else is divided below what it names. */
rp_status rpi_bind_choose(rpi_binding binding, const rpi_processor *processors, int count,
                          int rank, int ranks, cpu_set_t *out_set);

/* The same over those processors that this process may use, as the kernel describes them in
 * /sys; where it does not, each processor is a core and all are one socket and node. */
rp_status rpi_bind_here(rpi_binding binding, int rank, int ranks, cpu_set_t *out_set);

#endif
