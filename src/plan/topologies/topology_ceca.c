/* Two vectors a rank, one of which is sent in each round: the exact average of any number of
 * ranks after ceil(log2 ranks) rounds, one vector out and one in per round.
 *
 * Vector 0 is the mean of the m + 1 last ranks up to this one, vector 1 of the m before it
 * alone. A round doubles m; the bits of ranks - 1, from the top, say whether it adds one as
 * well. Source: Ding et al., "DSGD-CECA: Decentralized SGD with Communication-Optimal Exact
 * Consensus Algorithm", arXiv 2306.00256. */
#include "base/status.h"
#include "plan/topologies/topology.h"

static const rpi_option options[] = {
    RPI_TOPOLOGY_ROW("ports", COUNT, ports, "2", 1, 2, "1|2",
                     "2: receive from another rank than one sends to; 1: in pairs, of an even "
                     "number of ranks"),
    {0},
};

static rp_status check(const rpi_topology *topology) {
    if (topology->options.ports == 2 || topology->ranks % 2 == 0) return RP_OK;
    return RP_FAIL(INVALID,
                   "%d ranks do not go in pairs; ports=1 needs an even number, ports=2 and "
                   "topology base take any",
                   topology->ranks);
}

static int64_t rounds(const rpi_topology *topology) {
    int64_t count = 0;
    for (int rest = topology->ranks - 1; rest; rest >>= 1) count++;
    return count ? count : 1;
}

/* From whom a rank receives where `apart` ranks lie between it and what it has not heard of. */
static int source_of(const rpi_topology *topology, int rank, int apart, int m) {
    if (topology->options.ports == 2) return rpi_topology_wrap(rank - apart, topology->ranks);
    int across = rank % 2 ? rank + 2 * m + 1 : rank - 2 * m - 1;
    return rpi_topology_wrap(across, topology->ranks);
}

static void put(rpi_mixing *mixing, int into, int from, const int vectors[2],
                rpi_fraction weight) {
    rpi_mixing_weigh_vector(mixing, (rpi_mixing_entry){.to = into,
                                                       .from = from,
                                                       .into_vector = (uint8_t)vectors[0],
                                                       .from_vector = (uint8_t)vectors[1],
                                                       .weight = weight});
}

/* Vector `sent` arrives: the equal one takes the plain mean, the other weighs by how many ranks
 * are in each. */
static void receive(rpi_mixing *mixing, int rank, int source, int sent, int m) {
    int other = 1 - sent, theirs = sent == 0 ? m + 1 : m;
    put(mixing, rank, rank, (const int[]){sent, sent}, (rpi_fraction){1, 2});
    put(mixing, rank, source, (const int[]){sent, sent}, (rpi_fraction){1, 2});
    put(mixing, rank, rank, (const int[]){other, other},
        (rpi_fraction){2 * m + 1 - theirs, 2 * m + 1});
    put(mixing, rank, source, (const int[]){other, sent}, (rpi_fraction){theirs, 2 * m + 1});
}

static void mix(const rpi_topology *topology, int64_t step, rpi_mixing *mixing) {
    int last = topology->ranks - 1, m = 0;
    int64_t bit = rounds(topology) - 1;
    if (last == 0) {
        put(mixing, 0, 0, (const int[]){0, 0}, (rpi_fraction){1, 1});
        put(mixing, 0, 0, (const int[]){1, 1}, (rpi_fraction){1, 1});
        return;
    }
    for (int64_t i = 0; i < step; i++, bit--) m = 2 * m + (last >> bit & 1);
    bool adds = last >> bit & 1;
    for (int rank = 0; rank < topology->ranks; rank++)
        receive(mixing, rank, source_of(topology, rank, adds ? m + 1 : m, m), adds ? 0 : 1, m);
}

const rpi_topology_kind rpi_topology_ceca = {
    .name = "ceca",
    .summary =
        "exact after ceil(log2 N) rounds of any N, two vectors a rank; ports=1: in pairs",
    .options = options,
    .vectors = 2,
    .check = check,
    .period = rounds,
    .mix = mix,
};
