/* Shares of processors: every rank has some, cores are nobody else's, and what is named is not
 * divided. */
#include "cli/bind_ranks.h"

#include "harness/check.h"

/* Two sockets of two nodes each, of two cores with two threads: 16 processors, whose numbers
 * run over all cores before the second threads come, as Intel's do. */
enum { CORES = 8, PROCESSORS = 16 };
static rpi_processor host[PROCESSORS];

static void make_host(void) {
    for (int i = 0; i < PROCESSORS; i++) {
        int core = i % CORES;
        host[i] = (rpi_processor){
            .number = i, .core = core % 4, .socket = core / 4, .node = core / 2};
    }
}

/* Bit i: processor i. */
static unsigned share(rpi_binding binding, int rank, int ranks) {
    cpu_set_t set;
    unsigned bits = 0;
    CHECK_OK(rpi_bind_choose(binding, host, PROCESSORS, rank, ranks, &set));
    for (int i = 0; i < PROCESSORS; i++)
        if (CPU_ISSET((size_t)i, &set)) bits |= 1U << i;
    return bits;
}

static void shares_are_as_named(void) {
    static const struct {
        rpi_binding binding;
        int rank, ranks;
        unsigned bits;
    } cases[] = {
        {RPI_BIND_CORE, 0, 8, 0x0101},   {RPI_BIND_CORE, 7, 8, 0x8080},
        {RPI_BIND_CORE, 1, 2, 0xf0f0},   {RPI_BIND_CORE, 0, 3, 0x0303},
        {RPI_BIND_SOCKET, 0, 1, 0xffff}, {RPI_BIND_SOCKET, 0, 2, 0x0f0f},
        {RPI_BIND_SOCKET, 3, 4, 0xf0f0}, {RPI_BIND_SOCKET, 20, 40, 0xf0f0},
        {RPI_BIND_NUMA, 0, 2, 0x0f0f},   {RPI_BIND_NUMA, 2, 4, 0x3030},
        {RPI_BIND_NUMA, 7, 8, 0xc0c0},   {RPI_BIND_NONE, 1, 2, 0xffff},
    };
    make_host();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        unsigned bits = share(cases[i].binding, cases[i].rank, cases[i].ranks);
        CHECK_MSG(bits == cases[i].bits, "case %zu: %x, not %x", i, bits, cases[i].bits);
    }
}

static void every_rank_has_some_and_cores_are_its_own(void) {
    make_host();
    for (int ranks = 1; ranks <= 2 * PROCESSORS; ranks++)
        for (rpi_binding binding = RPI_BIND_CORE; binding <= RPI_BIND_NUMA; binding++) {
            unsigned all = 0, shared = 0;
            if (binding == RPI_BIND_CORE && ranks > CORES) continue;
            for (int rank = 0; rank < ranks; rank++) {
                unsigned own = share(binding, rank, ranks);
                CHECK(own != 0);
                shared |= all & own;
                all |= own;
            }
            CHECK_EQ(all, 0xffff);
            CHECK(binding != RPI_BIND_CORE || shared == 0);
        }
    cpu_set_t set;
    CHECK_FAILS(rpi_bind_choose(RPI_BIND_CORE, host, PROCESSORS, 0, 9, &set), INVALID,
                "9 ranks and 8 cores");
}

static void this_host_has_processors(void) {
    cpu_set_t set, allowed;
    REQUIRE(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    for (rpi_binding binding = RPI_BIND_NONE; binding <= RPI_BIND_NUMA; binding++) {
        CHECK_OK(rpi_bind_here(binding, 0, 1, &set));
        CHECK(CPU_EQUAL(&set, &allowed));
    }
}

static void names(void) {
    rpi_binding binding;
    CHECK_OK(rpi_binding_find("numa", &binding));
    CHECK_EQ(binding, RPI_BIND_NUMA);
    CHECK_FAILS(rpi_binding_check("cores"), INVALID, "none, core, socket or numa");
}

CASES({"shares_are_as_named", shares_are_as_named},
      {"every_rank_has_some_and_cores_are_its_own", every_rank_has_some_and_cores_are_its_own},
      {"this_host_has_processors", this_host_has_processors}, {"names", names})
