/* Which processors and which memory each rank of a host may use: redpoll run --bind-to. What
 * there is comes from hwloc (host_hwloc.h), or where this build has none from the kernel's
 * /sys. */
#ifndef RPI_CLI_BIND_RANKS_H
#define RPI_CLI_BIND_RANKS_H

#include "base/status.h"
#include "cli/bind_host.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum rpi_binding {
    RPI_BIND_NONE,
    RPI_BIND_CORE,   /* cores of their own, with all hardware threads */
    RPI_BIND_SOCKET, /* the processors of one package, or of several where ranks are fewer */
    RPI_BIND_NUMA,   /* of one NUMA node, in the same way */
} rpi_binding;

enum { RPI_NODES_MAX = 1024 };

typedef struct rpi_bind_share {
    cpu_set_t processors;
    uint64_t nodes[RPI_NODES_MAX / 64]; /* NUMA nodes of these; none: memory is left as it is */
    char text[200];                     /* "processors 0-3,8-11 and memory of NUMA node 0" */
} rpi_bind_share;

/* "none", "core", "socket" or "numa". */
rp_status rpi_binding_find(const char *name, rpi_binding *out_binding);
rp_status rpi_binding_check(const char *name);

/* Those processors that this process may use. By the kernel where each one's place is not told
 * it is a core, and all are one socket and node. RP_IO, RP_UNSUPPORTED. */
rp_status rpi_bind_host_find(rpi_bind_host *out_host);
/* Pure: the share of rank `rank` of `ranks`. RP_INVALID: fewer cores than ranks; nothing else
 * is divided below what it names. */
rp_status rpi_bind_choose(rpi_binding binding, const rpi_bind_host *host, int rank, int ranks,
                          rpi_bind_share *out_share);
/* Can so many ranks be bound here? As choose() says. */
rp_status rpi_bind_check(rpi_binding binding, int ranks);
/* This process, and what it starts: to the processors, and to the memory of the nodes as long
 * as they have any. System calls only, for a child between fork() and exec(). False: the kernel
 * takes one of them not, as it does in some containers. */
bool rpi_bind_self(const rpi_bind_share *share);

#endif
