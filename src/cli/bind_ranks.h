/* The processors and the memory that each rank of a host may use: redpoll run --bind-to. They
 * are found by hwloc (host_hwloc.h), or in a build without it from the kernel's /sys. */
#ifndef RPI_CLI_BIND_RANKS_H
#define RPI_CLI_BIND_RANKS_H

#include "base/status.h"
#include "cli/bind_host.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum rpi_binding {
    RPI_BIND_NONE,
    RPI_BIND_CORE,   /* cores of their own, with all hardware threads */
    RPI_BIND_SOCKET, /* the processors of one package, or of several with fewer ranks */
    RPI_BIND_NUMA,   /* of one NUMA node, in the same way */
} rpi_binding;

enum { RPI_NODES_MAX = 1024 };

typedef struct rpi_bind_share {
    cpu_set_t processors;
    uint64_t nodes[RPI_NODES_MAX / 64]; /* NUMA nodes of these; none: memory is not bound */
    char text[200];                     /* "processors 0-3,8-11 and memory of NUMA node 0" */
} rpi_bind_share;

/* "none", "core", "socket" or "numa". */
rp_status rpi_binding_find(const char *name, rpi_binding *out_binding);
rp_status rpi_binding_check(const char *name);

/* The processors that this process may use. If the kernel does not say where one is it counts
 * as a core, and all as one socket and node. RP_IO, RP_UNSUPPORTED. */
rp_status rpi_bind_host_find(rpi_bind_host *out_host);
/* Pure: the share of rank `rank` of `ranks`. RP_INVALID: there are fewer cores than ranks.
 * Sockets and nodes are not divided. */
rp_status rpi_bind_choose(rpi_binding binding, const rpi_bind_host *host, int rank, int ranks,
                          rpi_bind_share *out_share);
/* Can so many ranks be bound here? Fails as choose() does. */
rp_status rpi_bind_check(rpi_binding binding, int ranks);
/* Binds this process, and what it starts: to the processors, and to the memory of the nodes if
 * there are any. Makes system calls only, for a child between fork() and exec(). False: the
 * kernel refuses one of them, as it does in some containers. */
bool rpi_bind_self(const rpi_bind_share *share);

#endif
