#include "train/parallel/host_group.h"

#include "base/memory.h"
#include "base/status.h"
#include "comm/core/communicator.h"

static int ranks_on(const rp_comm *comm, int host) {
    int count = 0;
    for (int rank = 0; rank < rp_comm_world(comm); rank++) count += comm->hosts[rank] == host;
    return count;
}

int rpi_host_group_ranks(const rp_comm *comm) {
    int world = rp_comm_world(comm);
    if (world < 2 || !comm->hosts || ranks_on(comm, comm->hosts[0]) == world) return 0;
    for (int rank = 0; rank < world; rank++)
        if (ranks_on(comm, comm->hosts[rank]) < 2) return 0;
    return ranks_on(comm, comm->hosts[rp_comm_rank(comm)]);
}

typedef struct host_groups {
    rp_group *groups;
    rp_comm **comms;
    int *ranks;
    int count;
} host_groups;

static void close_groups(host_groups *g) {
    rpi_free(g->groups);
    rpi_free(g->comms);
    rpi_free(g->ranks);
}

/* Hosts are numbered in the order of their first ranks. */
static rp_status list_groups(const rp_comm *comm, const rp_comm_options *options,
                             host_groups *g) {
    size_t world = (size_t)rp_comm_world(comm);
    int *next = NULL;
    RP_TRY(rpi_alloc_array(world, sizeof *g->groups, "hosts", &g->groups));
    RP_TRY(rpi_alloc_array(world, sizeof *g->comms, "hosts", &g->comms));
    RP_TRY(rpi_alloc_array(world, sizeof *g->ranks, "hosts", &g->ranks));
    next = g->ranks;
    for (int host = 0, there; (there = ranks_on(comm, host)) > 0; host++) {
        g->groups[g->count++] = (rp_group){.ranks = next, .count = there, .options = options};
        for (int rank = 0; rank < (int)world; rank++)
            if (comm->hosts[rank] == host) *next++ = rank;
    }
    return RP_OK;
}

rp_status rpi_host_group_open(rp_comm *comm, rp_comm **out_group) {
    const rp_comm_options options =
        RP_COMM_OPTIONS(.name = "host", .priority = RP_PRIORITY_BULK);
    host_groups g = {0};
    rp_status status = list_groups(comm, &options, &g);
    if (status == RP_OK) status = rp_comm_groups(comm, g.groups, (size_t)g.count, g.comms);
    if (status == RP_OK) *out_group = g.comms[comm->hosts[rp_comm_rank(comm)]];
    close_groups(&g);
    return status;
}
