/* A mesh while it comes up, and the three things that are done for it, each in a file of its
 * own:
 *
 *     mesh_info.c    who is there, and do all mean the same: what each rank says of itself
 *     mesh_connect.c endpoints, one for each transport that is needed; and the order of it all
 *     mesh_links.c   links, in an order in which no cycle of ranks waits for each other
 */
#ifndef RPI_NET_MESH_WORK_H
#define RPI_NET_MESH_WORK_H

#include "net/store/bootstrap.h"
#include "net/world/mesh.h"

enum { RPI_MESH_KINDS = 4, RPI_MESH_NAME_BYTES = 32 };

/* While the mesh comes up. */
typedef struct rpi_mesh_work {
    rpi_mesh *mesh;
    const rpi_mesh_options *options;
    rpi_bootstrap bootstrap;
    const rpi_transport *asked; /* by name; NULL: whichever reaches */
    const rpi_transport *outer; /* wraps the links of a mesh with a shape; NULL: none */
    const rpi_transport *kinds[RPI_MESH_KINDS]; /* in use; mesh->endpoints[i] is of kinds[i] */
    bool wrapped[RPI_MESH_KINDS];               /* in `outer` */
    char names[RPI_MESH_KINDS][RPI_MESH_NAME_BYTES]; /* under which their addresses are shown */
    int kind_count;
    rpi_kept_error told; /* the status of a check while a link was waited for */
    bool has_told;
} rpi_mesh_work;

static inline const char *rpi_mesh_requested(const rpi_mesh_options *options) {
    return options->transport ? options->transport : "auto";
}

static inline bool rpi_mesh_is_shaped(const rpi_mesh_options *options) {
    return options->shape.bytes_per_s > 0 || options->shape.latency_s > 0;
}

static inline int rpi_mesh_streams(const rpi_mesh_options *options) {
    return options->streams ? options->streams : 1;
}

/* All ranks publish who they are, read the others and compare; hosts are numbered then. */
rp_status rpi_mesh_exchange_info(rpi_mesh_work *work);
/* The value after "name=" in such a text, up to the end of its line; "" if absent. */
const char *rpi_mesh_field(const char *text, const char *name, char *value, size_t bytes);

/* Links to all ranks. */
rp_status rpi_mesh_connect_all(rpi_mesh_work *work);
/* Or, if they are made on need, the one of a rank's endpoints by which it is called. */
rp_status rpi_mesh_keep_addresses(rpi_mesh_work *work);

#endif
