/* Neighbours at distances that are powers of a base: all of them in each round, or one a round.
 * Source: Ying et al., "Exponential Graph is Provably Efficient for Decentralized Deep
 * Training", arXiv 2110.13363. Powers are integers: floating logarithms miss 3^5. */
#include "base/status.h"
#include "plan/topologies/topology.h"

#define BASE_ROW                                                                               \
    RPI_TOPOLOGY_ROW("base", COUNT, base, "2", 2, RPI_TOPOLOGY_RANKS, "B",                     \
                     "distances are its powers")

static const rpi_option options[] = {
    BASE_ROW,
    RPI_TOPOLOGY_ROW("symmetric", FLAG, symmetric, NULL, 0, 0, "on|off",
                     "send both ways round, each distance the shorter way"),
    RPI_TOPOLOGY_WEIGHTS,
    {0},
};
static const rpi_option one_peer_options[] = {BASE_ROW, {0}};

static bool is_power(int64_t number, int64_t base) {
    int64_t power = 1;
    while (power < number) power *= base;
    return power == number;
}

static bool is_hop(const rpi_topology *topology, int hop) {
    int back = topology->ranks - hop;
    int shorter = topology->options.symmetric && back < hop ? back : hop;
    return is_power(shorter, topology->options.base);
}

static void mix(const rpi_topology *topology, int64_t step, rpi_mixing *mixing) {
    (void)step;
    for (int hop = 1; hop < topology->ranks; hop++)
        for (int rank = 0; rank < topology->ranks && is_hop(topology, hop); rank++)
            rpi_mixing_link(mixing, rank, (rank + hop) % topology->ranks);
}

static int64_t one_peer_period(const rpi_topology *topology) {
    int64_t hops = 0;
    for (int64_t power = 1; power < topology->ranks; power *= topology->options.base) hops++;
    return hops ? hops : 1;
}

static void mix_one_peer(const rpi_topology *topology, int64_t step, rpi_mixing *mixing) {
    int64_t hop = 1;
    for (int64_t i = 0; i < step; i++) hop *= topology->options.base;
    for (int rank = 0; rank < topology->ranks; rank++)
        rpi_mixing_link(mixing, rank, rpi_topology_wrap(rank + hop, topology->ranks));
}

const rpi_topology_kind rpi_topology_exponential = {
    .name = "exponential",
    .summary =
        "to the ranks 1, 2, 4, 8 ... further on, all in each round; base=B, symmetric=on",
    .options = options,
    .weights = RPI_WEIGHTS_UNIFORM,
    .mix = mix,
};

const rpi_topology_kind rpi_topology_one_peer = {
    .name = "one-peer-exponential",
    .summary = "the same one a round in turn: exact after log2 N rounds of N = 2, 4, 8, 16 ...",
    .options = one_peer_options,
    .weights = RPI_WEIGHTS_UNIFORM,
    .period = one_peer_period,
    .mix = mix_one_peer,
};
