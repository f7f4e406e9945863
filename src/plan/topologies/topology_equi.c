/* Random shifts: in each step all ranks know from the seed how far they send. The distance to
 * the average shrinks by the same factor whatever the number of ranks. With `degree` shifts
 * that are drawn once it is a static graph. Source: Song et al., "Communication-Efficient
 * Topologies for Decentralized Learning with O(1) Consensus Rate", arXiv 2210.07881. */
#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "plan/rational.h"
#include "plan/topologies/topology.h"

static const rpi_option options[] = {
    RPI_TOPOLOGY_ROW("degree", COUNT, degree, "0", 0, RPI_TOPOLOGY_RANKS, "M",
                     "shifts of a static graph; 0: one anew in each step"),
    RPI_TOPOLOGY_ROW("directed", FLAG, directed, "on", 0, 0, "on|off",
                     "off: whoever sends receives from the same rank"),
    RPI_TOPOLOGY_ROW("seed", COUNT, seed, "1", 0, 0, "N",
                     "of the shifts, on all ranks the same"),
    {0},
};

static rp_status check(const rpi_topology *topology) {
    int most = topology->ranks - 1;
    if (topology->options.degree <= most) return RP_OK;
    return RP_FAIL(INVALID, "degree is %lld; %d ranks have 1 to %d shifts",
                   (long long)topology->options.degree, topology->ranks, most);
}

static int64_t period(const rpi_topology *topology) {
    return topology->options.degree || topology->ranks < 3 ? 1 : 0;
}

static rpi_rng rng_of(const rpi_topology *topology, int64_t step) {
    return rpi_rng_make((uint64_t)topology->options.seed, RPI_RNG_TOPOLOGY, (uint64_t)step);
}

/* ---- one shift a step: a half stays, a half goes ---- */

static const rpi_fraction half = {1, 2};

/* Pairs along the shift, from a drawn rank on; whoever finds nobody left keeps what it has. */
static rp_status pair_up(rpi_mixing *mixing, int ranks, int shift, int start) {
    bool *paired = NULL;
    RP_TRY(rpi_alloc_array((size_t)ranks, sizeof *paired, "pairs", &paired));
    for (int i = 0; i < ranks; i++) {
        int a = (start + i) % ranks, b = (a + shift) % ranks;
        if (paired[a] || paired[b]) continue;
        paired[a] = paired[b] = true;
        rpi_mixing_weigh(mixing, a, b, half);
        rpi_mixing_weigh(mixing, b, a, half);
    }
    rpi_free(paired);
    return RP_OK;
}

static void mix_one(const rpi_topology *topology, int64_t step, rpi_mixing *mixing) {
    int ranks = topology->ranks;
    rpi_rng rng = rng_of(topology, step);
    if (ranks == 1) return;
    int shift = 1 + (int)rpi_rng_below(&rng, (uint32_t)ranks - 1);
    int start = (int)rpi_rng_below(&rng, (uint32_t)ranks);
    if (!topology->options.directed) {
        rp_status status = pair_up(mixing, ranks, shift, start);
        if (mixing->status == RP_OK) mixing->status = status;
        return;
    }
    for (int rank = 0; rank < ranks; rank++)
        rpi_mixing_weigh(mixing, rank, (rank + shift) % ranks, half);
}

/* ---- several shifts, always the same: the mean of I/n + (1 - 1/n) * shift ---- */

/* Different ones, by a partial shuffle of all there are. */
static void draw_shifts(const rpi_topology *topology, int64_t attempt, int *all, int *shifts) {
    int count = topology->ranks - 1;
    rpi_rng rng = rng_of(topology, attempt);
    for (int i = 0; i < count; i++) all[i] = i + 1;
    for (int i = 0; i < topology->options.degree; i++) {
        int drawn = i + (int)rpi_rng_below(&rng, (uint32_t)(count - i));
        shifts[i] = all[drawn];
        all[drawn] = all[i];
    }
}

/* Sums of shifts reach every rank unless all of them share a divisor with the world. */
static bool reaches_all(const rpi_topology *topology, const int *shifts) {
    int64_t divisor = topology->ranks;
    for (int i = 0; i < topology->options.degree; i++)
        divisor = rpi_common_divisor(divisor, shifts[i]);
    return divisor == 1;
}

static rp_status open(rpi_topology *topology) {
    enum { ATTEMPTS = 1000 };
    int *all = NULL, *shifts = NULL;
    if (!topology->options.degree) return RP_OK;
    RP_TRY(
        rpi_alloc_array((size_t)topology->options.degree, sizeof *shifts, "shifts", &shifts));
    topology->state = shifts;
    RP_TRY(rpi_alloc_array((size_t)topology->ranks, sizeof *all, "shifts", &all));
    int64_t attempt = 0;
    do {
        draw_shifts(topology, attempt, all, shifts);
    } while (!reaches_all(topology, shifts) && ++attempt < ATTEMPTS);
    if (attempt == ATTEMPTS) shifts[0] = 1; /* which every world has, and reaches all */
    rpi_free(all);
    return RP_OK;
}

static void close(rpi_topology *topology) {
    rpi_free(topology->state);
}

static void mix_many(const rpi_topology *topology, rpi_mixing *mixing) {
    const int *shifts = topology->state;
    int ranks = topology->ranks, degree = (int)topology->options.degree;
    bool directed = topology->options.directed;
    rpi_fraction weight = {ranks - 1, ranks * degree * (directed ? 1 : 2)};
    for (int i = 0; i < degree; i++)
        for (int rank = 0; rank < ranks; rank++) {
            int other = (rank + shifts[i]) % ranks;
            rpi_mixing_weigh(mixing, rank, other, weight);
            if (!directed) rpi_mixing_weigh(mixing, other, rank, weight);
        }
}

static void mix(const rpi_topology *topology, int64_t step, rpi_mixing *mixing) {
    if (topology->options.degree)
        mix_many(topology, mixing);
    else
        mix_one(topology, step, mixing);
}

const rpi_topology_kind rpi_topology_equi = {
    .name = "equi",
    .summary =
        "random shifts by a common seed; degree=M (static), directed=off (pairs), seed=N",
    .options = options,
    .check = check,
    .open = open,
    .close = close,
    .period = period,
    .mix = mix,
};
