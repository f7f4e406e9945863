#include "net/world/mesh.h"

#include "base/memory.h"
#include "net/shaped/host_nic.h"

#include <string.h>

rp_status rpi_mesh_when_parse(const char *text, rpi_mesh_when *out_when) {
    static const char *const names[] = {
        [RPI_MESH_AUTO] = "auto", [RPI_MESH_START] = "start", [RPI_MESH_NEED] = "need"};
    int when = RPI_MESH_AUTO;
    while (text && when <= RPI_MESH_NEED && strcmp(text, names[when]) != 0) when++;
    if (when > RPI_MESH_NEED)
        return RP_FAIL(INVALID, "'%.40s' is no time of connecting: auto, start or need", text);
    *out_when = (rpi_mesh_when)when;
    return RP_OK;
}

rp_status rpi_mesh_call(rpi_mesh *mesh, int peer) {
    rpi_endpoint *endpoint = mesh->endpoints[mesh->kind_of[peer]];
    return endpoint->transport->call(endpoint, peer, mesh->addresses[peer]);
}

rp_status rpi_mesh_connected(rpi_mesh *mesh, int *out_peer) {
    rp_status status = RP_PENDING;
    for (int i = 0; mesh->on_need && status == RP_PENDING && mesh->endpoints[i]; i++) {
        rpi_link *link = NULL;
        status = mesh->endpoints[i]->transport->connected(mesh->endpoints[i], out_peer, &link);
        if (status == RP_OK) mesh->links[*out_peer] = link;
    }
    return status;
}

void rpi_mesh_close(rpi_mesh *mesh) {
    if (!mesh) return;
    for (int i = 0; mesh->endpoints[i]; i++)
        mesh->endpoints[i]->transport->close(mesh->endpoints[i]);
    rpi_host_nic_close(mesh->nic);
    for (int peer = 0; mesh->addresses && peer < mesh->world; peer++)
        rpi_free(mesh->addresses[peer]);
    rpi_free(mesh->addresses);
    rpi_free(mesh->kind_of);
    rpi_free(mesh->links);
    rpi_free(mesh->host_of);
    rpi_free(mesh->peers);
    rpi_free(mesh);
}

void rpi_mesh_close_after_fork(rpi_mesh *mesh) {
    for (int i = 0; mesh->endpoints[i]; i++)
        mesh->endpoints[i]->transport->close_after_fork(mesh->endpoints[i]);
}
