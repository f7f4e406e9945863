/* The average inside each machine, and a topology of machines over those averages: rank =
 * machine * local + place. Between machines only one vector travels for each edge of the inner
 * topology when the ranks of a machine share it. */
#include "base/status.h"
#include "plan/topologies/topology.h"

static const rpi_option options[] = {
    RPI_TOPOLOGY_ROW("local", COUNT, local, NULL, 1, RPI_TOPOLOGY_RANKS, "L",
                     "ranks of a machine"),
    RPI_TOPOLOGY_ROW("machines", TEXT, machines, "base", 0, 0, "TOPOLOGY",
                     "of the machines; takes the rest of the text"),
    {0},
};

static rp_status check(const rpi_topology *topology) {
    return rpi_topology_check_machines(topology, 1);
}

static int local_of(const rpi_topology *topology) {
    return (int)topology->options.local;
}

static rp_status open(rpi_topology *topology) {
    rpi_topology *inner = NULL;
    RP_TRY(rpi_topology_open_of(topology->kinds, topology->options.machines,
                                topology->ranks / local_of(topology), &inner));
    topology->state = inner;
    topology->vectors = inner->vectors;
    return RP_OK;
}

static void close(rpi_topology *topology) {
    rpi_topology_close(topology->state);
}

static int64_t period(const rpi_topology *topology) {
    return ((const rpi_topology *)topology->state)->period;
}

/* What machine `from` gives machine `to` comes in equal shares from all its ranks. */
static void spread(rpi_mixing *mixing, int local, int to, int from, const rpi_edge *edge) {
    if (edge->weight.over > INT32_MAX / local) {
        mixing->status = RP_FAIL(INVALID, "a weight of %d/%d cannot be shared by %d ranks",
                                 edge->weight.times, edge->weight.over, local);
        return;
    }
    for (int i = 0; i < local; i++)
        for (int j = 0; j < local; j++)
            rpi_mixing_weigh_vector(
                mixing,
                (rpi_mixing_entry){.to = to * local + i,
                                   .from = from * local + j,
                                   .into_vector = edge->into,
                                   .from_vector = edge->from,
                                   .weight = {edge->weight.times, edge->weight.over * local}});
}

static void spread_all(rpi_mixing *mixing, int local, int to, rpi_edges edges, bool own) {
    for (int i = 0; i < edges.count && mixing->status == RP_OK; i++)
        spread(mixing, local, to, own ? to : edges.list[i].rank, &edges.list[i]);
}

static void mix(const rpi_topology *topology, int64_t step, rpi_mixing *mixing) {
    const rpi_topology *inner = topology->state;
    rpi_mixing machines = {0};
    rp_status status = rpi_topology_mix(inner, step, &machines);
    if (status != RP_OK) mixing->status = status;
    for (int machine = 0; machine < inner->ranks && mixing->status == RP_OK; machine++) {
        spread_all(mixing, local_of(topology), machine, rpi_mixing_own(&machines, machine),
                   true);
        spread_all(mixing, local_of(topology), machine, rpi_mixing_in(&machines, machine),
                   false);
    }
    rpi_mixing_free(&machines);
}

const rpi_topology_kind rpi_topology_hierarchical = {
    .name = "hierarchical",
    .summary = "the mean inside machines of local=L ranks, machines=TOPOLOGY between them",
    .options = options,
    .rest = "machines",
    .check = check,
    .open = open,
    .close = close,
    .period = period,
    .mix = mix,
};
