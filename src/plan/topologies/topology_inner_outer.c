/* Machines of at least three ranks, one edge a rank and round: in turn one rank of each machine
 * sends to another machine, while the others send round inside and leave it out. BlueFog's
 * GetInnerOuterRingDynamicSendRecvRanks and GetInnerOuterExpo2DynamicSendRecvRanks. */
#include "base/status.h"
#include "plan/topologies/topology.h"

static const rpi_option options[] = {
    RPI_TOPOLOGY_ROW("local", COUNT, local, NULL, 1, RPI_TOPOLOGY_RANKS, "L",
                     "ranks of a machine, 3 or more"),
    {0},
};

typedef struct places {
    int machines, local;
} places;

static places places_of(const rpi_topology *topology) {
    int local = (int)topology->options.local;
    return (places){.machines = topology->ranks / local, .local = local};
}

/* How many powers of two are `number`, 1 or more, or less. */
static int powers_up_to(int number) {
    int count = 1;
    for (; number > 1; number >>= 1) count++;
    return count;
}

static rp_status check_ring(const rpi_topology *topology) {
    return rpi_topology_check_machines(topology, 3);
}

static rp_status check_expo(const rpi_topology *topology) {
    RP_TRY(rpi_topology_check_machines(topology, 3));
    if (places_of(topology).machines >= 2) return RP_OK;
    return RP_FAIL(INVALID, "all %d ranks are on one machine of %lld; 2 machines are needed",
                   topology->ranks, (long long)topology->options.local);
}

static int64_t period_ring(const rpi_topology *topology) {
    return topology->options.local;
}

static int64_t period_expo(const rpi_topology *topology) {
    places p = places_of(topology);
    int64_t inside = rpi_least_common_multiple(p.local, powers_up_to(p.local - 2));
    return rpi_least_common_multiple(inside, powers_up_to(p.machines - 1));
}

/* The rank whose turn it is goes `machines` machines on, the others `places` places, and one
 * more where they would reach it or pass it. */
static void mix_by(const rpi_topology *topology, int64_t step, int machines, int places_on,
                   rpi_mixing *mixing) {
    places p = places_of(topology);
    int out = (int)(step % p.local);
    for (int rank = 0; rank < topology->ranks; rank++) {
        int machine = rank / p.local, place = rank % p.local;
        int before_out = rpi_topology_wrap(out - place, p.local);
        int on = places_on >= before_out ? places_on + 1 : places_on;
        int to = place == out ? (machine + machines) % p.machines * p.local + place
                              : machine * p.local + (place + on) % p.local;
        if (to != rank) rpi_mixing_weigh(mixing, rank, to, (rpi_fraction){1, 2});
    }
}

static void mix_ring(const rpi_topology *topology, int64_t step, rpi_mixing *mixing) {
    mix_by(topology, step, 1, 1, mixing);
}

static void mix_expo(const rpi_topology *topology, int64_t step, rpi_mixing *mixing) {
    places p = places_of(topology);
    mix_by(topology, step, 1 << step % powers_up_to(p.machines - 1),
           1 << step % powers_up_to(p.local - 2), mixing);
}

const rpi_topology_kind rpi_topology_inner_outer_ring = {
    .name = "inner-outer-ring",
    .summary = "machines of local=L ranks: one in turn to the next machine, the others round",
    .options = options,
    .check = check_ring,
    .period = period_ring,
    .mix = mix_ring,
};

const rpi_topology_kind rpi_topology_inner_outer_expo = {
    .name = "inner-outer-expo",
    .summary = "the same at distances 1, 2, 4 ... in turn, outside and inside",
    .options = options,
    .check = check_expo,
    .period = period_expo,
    .mix = mix_expo,
};
