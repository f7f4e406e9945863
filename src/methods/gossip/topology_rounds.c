#include "methods/gossip/topology_rounds.h"

#include "base/memory.h"
#include "base/status.h"

enum { MOST_KEPT = 256 };

typedef struct kept_round {
    rp_neighbors lists;
    rp_neighbor *memory; /* sources, destinations; NULL: not made yet */
} kept_round;

struct rpi_topology_rounds {
    rpi_topology *topology;
    int rank;
    rpi_mixing mixing;
    kept_round *rounds; /* [kept] */
    int64_t kept;       /* the whole period, or 1: the last that was asked for */
};

rp_status rpi_topology_rounds_open(const char *text, int ranks, int rank,
                                   rpi_topology_rounds **out_rounds) {
    rpi_topology_rounds *rounds = NULL;
    RP_TRY(rpi_alloc(sizeof *rounds, "a topology's rounds", &rounds));
    rounds->rank = rank;
    rp_status status = rpi_topology_open(text, ranks, &rounds->topology);
    if (status == RP_OK) status = rpi_topology_check_single(rounds->topology);
    int64_t period = status == RP_OK ? rounds->topology->period : 0;
    rounds->kept = period > 0 && period <= MOST_KEPT ? period : 1;
    if (status == RP_OK)
        status = rpi_alloc_array((size_t)rounds->kept, sizeof *rounds->rounds,
                                 "a topology's rounds", &rounds->rounds);
    if (status == RP_OK)
        *out_rounds = rounds;
    else
        rpi_topology_rounds_close(rounds);
    return status;
}

void rpi_topology_rounds_close(rpi_topology_rounds *rounds) {
    if (!rounds) return;
    for (int64_t i = 0; rounds->rounds && i < rounds->kept; i++)
        rpi_free(rounds->rounds[i].memory);
    rpi_free(rounds->rounds);
    rpi_mixing_free(&rounds->mixing);
    rpi_topology_close(rounds->topology);
    rpi_free(rounds);
}

const rpi_topology *rpi_topology_rounds_of(const rpi_topology_rounds *rounds) {
    return rounds->topology;
}

static rp_status make(const rpi_topology_rounds *rounds, kept_round *round) {
    rpi_edges in = rpi_mixing_in(&rounds->mixing, rounds->rank);
    rpi_edges out = rpi_mixing_out(&rounds->mixing, rounds->rank);
    rpi_edges own = rpi_mixing_own(&rounds->mixing, rounds->rank);
    rpi_free(round->memory);
    round->memory = NULL;
    RP_TRY(rpi_alloc_array((size_t)in.count + (size_t)out.count, sizeof *round->memory,
                           "neighbours", &round->memory));
    rp_neighbor *sources = round->memory, *destinations = sources + in.count;
    for (int i = 0; i < in.count; i++)
        sources[i] = (rp_neighbor){in.list[i].rank, rpi_edge_weight(&in.list[i])};
    for (int i = 0; i < out.count; i++) destinations[i] = (rp_neighbor){out.list[i].rank, 1};
    round->lists = (rp_neighbors){.self_weight = rpi_edge_weight(&own.list[0]),
                                  .sources = sources,
                                  .source_count = (size_t)in.count,
                                  .destinations = destinations,
                                  .destination_count = (size_t)out.count};
    return RP_OK;
}

rp_status rpi_topology_rounds_at(rpi_topology_rounds *rounds, int64_t step,
                                 const rp_neighbors **out_neighbors) {
    int64_t period = rounds->topology->period;
    bool keeps = period > 0 && rounds->kept == period;
    if (period > 0) step %= period;
    kept_round *round = &rounds->rounds[keeps ? step : 0];
    if (!keeps || !round->memory) {
        RP_TRY(rpi_topology_mix(rounds->topology, step, &rounds->mixing));
        RP_TRY(make(rounds, round));
    }
    *out_neighbors = &round->lists;
    return RP_OK;
}
