#include "base/memory.h"
#include "net/world/mesh_work.h"

#include <stdio.h>

/* `status` is TIMEOUT, and recorded. The peer may have waited for another. */
static rp_status blame(rpi_mesh_work *work, int peer, rp_status status) {
    rpi_bootstrap *bootstrap = &work->bootstrap;
    rpi_bootstrap_pair pair;
    char reason[sizeof pair.reason];
    snprintf(reason, sizeof reason, "%s", rp_last_error()->message);
    rpi_bootstrap_find_pair(bootstrap, peer, reason, &pair);
    int low = pair.waiter < pair.late ? pair.waiter : pair.late;
    if (pair.mutual)
        return rpi_fail(
            status, __FILE__, __LINE__,
            "timed out: ranks %d and %d did not connect to each other within %g s, though both "
            "have arrived: is the network between their hosts cut, or closed by a "
            "firewall? %s",
            low, pair.waiter + pair.late - low, bootstrap->timeout_s, pair.reason);
    return rpi_fail(
        status, __FILE__, __LINE__,
        "timed out: rank %d waited %g s for rank %d, which has arrived and waits for nobody: "
        "is it stopped? %s",
        pair.waiter, bootstrap->timeout_s, pair.late, pair.reason);
}

static rp_status cannot_connect(rpi_mesh_work *work, int peer, rp_status status) {
    if (work->has_told) { /* nothing that this link is to blame for */
        rpi_error_put_back(&work->told);
        return status;
    }
    status = rpi_fail_context(status, "rank %d connecting to rank %d by %s: ", work->mesh->rank,
                              peer, work->kinds[work->mesh->kind_of[peer]]->name);
    return status == RP_TIMEOUT ? blame(work, peer, status) : status;
}

static const char *address_of(const rpi_mesh_work *work, int peer,
                              char text[RPI_BOOTSTRAP_BYTES]) {
    return rpi_mesh_field(work->mesh->addresses[peer], work->names[work->mesh->kind_of[peer]],
                          text, RPI_BOOTSTRAP_BYTES);
}

rp_status rpi_mesh_keep_addresses(rpi_mesh_work *work) {
    rpi_mesh *mesh = work->mesh;
    char text[RPI_BOOTSTRAP_BYTES];
    for (int peer = 0; peer < mesh->world; peer++) {
        if (peer == mesh->rank) continue;
        char *address = NULL;
        RP_TRY(rpi_strdup(address_of(work, peer, text), &address));
        rpi_free(mesh->addresses[peer]);
        mesh->addresses[peer] = address;
    }
    return RP_OK;
}

static rp_status connect_one(rpi_mesh_work *work, int peer) {
    rpi_mesh *mesh = work->mesh;
    rpi_endpoint *endpoint = mesh->endpoints[work->mesh->kind_of[peer]];
    char address[RPI_BOOTSTRAP_BYTES];
    rp_status status =
        endpoint->transport->connect(endpoint, peer, address_of(work, peer, address),
                                     work->bootstrap.deadline_ns, &mesh->links[peer]);
    return status == RP_OK ? RP_OK : cannot_connect(work, peer, status);
}

/* Ranks that are connected at once, and the most that call an acceptor at once: well below
 * RPI_CALLERS. */
enum { GROUP = 16 };

/* Begin with those of the group that this kind reaches. */
static rp_status dial(rpi_mesh_work *work, int kind, const int *group, int count) {
    rpi_endpoint *endpoint = work->mesh->endpoints[kind];
    char texts[GROUP][RPI_BOOTSTRAP_BYTES];
    const char *addresses[GROUP];
    int peers[GROUP], dialled = 0, failed = -1;
    if (!endpoint->transport->dial) return RP_OK;
    for (int i = 0; i < count; i++) {
        if (work->mesh->kind_of[group[i]] != kind) continue;
        addresses[dialled] = address_of(work, group[i], texts[dialled]);
        peers[dialled++] = group[i];
    }
    rp_status status = endpoint->transport->dial(endpoint, peers, addresses, dialled,
                                                 work->bootstrap.deadline_ns, &failed);
    return status == RP_OK ? RP_OK : cannot_connect(work, failed, status);
}

/* All of them are lower than this rank, or higher. A rank that waits for one of them by one
 * kind answers nobody who calls by another, and a call with a proof waits for its answer. With
 * several kinds, pairs therefore connect one by one in the order of their rounds. */
static rp_status connect_group(rpi_mesh_work *work, const int *group, int count) {
    bool lower = count > 0 && group[0] < work->mesh->rank;
    if (lower && work->kind_count == 1) RP_TRY(dial(work, 0, group, count));
    for (int i = 0; i < count; i++) RP_TRY(connect_one(work, group[i]));
    return RP_OK;
}

/* In round r every rank connects to rank ^ r: each pair once, and as all ranks take the rounds
 * in the same order, no cycle of ranks can wait for each other. Rounds r to r + n - 1, where n
 * is a power of two and r a multiple of it, are taken together: in them two blocks of n ranks
 * connect, every rank of one with every rank of the other, and the ranks of the higher block
 * all call. */
rp_status rpi_mesh_connect_all(rpi_mesh_work *work) {
    const rpi_mesh *mesh = work->mesh;
    int rounds = 1, together;
    while (rounds < mesh->world) rounds *= 2;
    for (int round = 1; round < rounds; round += together) {
        int group[GROUP], count = 0;
        together = round < GROUP ? round : GROUP;
        for (int i = round; i < round + together; i++)
            if ((mesh->rank ^ i) < mesh->world) group[count++] = mesh->rank ^ i;
        RP_TRY(connect_group(work, group, count));
    }
    return RP_OK;
}
