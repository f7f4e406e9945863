#include "cli/host_hwloc.h"

#ifdef RPI_WITH_HWLOC
#    include <hwloc.h>

const char *rpi_hwloc_version(void) {
    return HWLOC_VERSION;
}

static int number_of(hwloc_topology_t topology, hwloc_obj_t processor, hwloc_obj_type_t type,
                     int otherwise) {
    hwloc_obj_t above = hwloc_get_ancestor_obj_by_type(topology, type, processor);
    return above ? (int)above->logical_index : otherwise;
}

/* The first NUMA node with these processors. Nodes without processors, and a second kind of
 * memory beside the usual one, come later or not at all. */
static int node_of(hwloc_topology_t topology, hwloc_obj_t processor) {
    hwloc_obj_t node = NULL;
    while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != NULL)
        if (hwloc_bitmap_isset(node->cpuset, processor->os_index)) return (int)node->os_index;
    return -1;
}

static void list_processors(hwloc_topology_t topology, rpi_bind_host *host) {
    hwloc_obj_t each = NULL;
    while ((each = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PU, each)) != NULL) {
        if (host->count == CPU_SETSIZE || each->os_index >= CPU_SETSIZE) continue;
        int number = (int)each->os_index;
        host->processors[host->count++] =
            (rpi_processor){.number = number,
                            .core = number_of(topology, each, HWLOC_OBJ_CORE, number),
                            .socket = number_of(topology, each, HWLOC_OBJ_PACKAGE, 0),
                            .node = node_of(topology, each)};
    }
}

rp_status rpi_hwloc_find(rpi_bind_host *out_host) {
    hwloc_topology_t topology;
    out_host->count = 0;
    if (hwloc_topology_init(&topology) != 0)
        return RP_FAIL_ERRNO(IO, "hwloc cannot describe this host");
    if (hwloc_topology_load(topology) != 0) {
        rp_status status = RP_FAIL_ERRNO(IO, "hwloc cannot describe this host");
        hwloc_topology_destroy(topology);
        return status;
    }
    out_host->is_made_up = !hwloc_topology_is_thissystem(topology);
    list_processors(topology, out_host);
    hwloc_topology_destroy(topology);
    return RP_OK;
}
#else
const char *rpi_hwloc_version(void) {
    return NULL;
}

rp_status rpi_hwloc_find(rpi_bind_host *out_host) {
    (void)out_host;
    return RP_FAIL(UNSUPPORTED, "this build has no hwloc (Debian and Ubuntu: apt-get install "
                                "libhwloc-dev, and build again)");
}
#endif
