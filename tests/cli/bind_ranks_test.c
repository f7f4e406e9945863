/* Shares of processors: every rank has some, cores are nobody else's, and what is named is not
 * divided. */
#include "cli/bind_ranks.h"

#include "cli/host_hwloc.h"
#include "harness/check.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Two sockets of two nodes each, of two cores with two threads: 16 processors, whose numbers
 * run over all cores before the second threads come, as Intel's do. */
enum { CORES = 8, PROCESSORS = 16 };
static rpi_bind_host host;

static void make_host(void) {
    host.count = PROCESSORS;
    for (int i = 0; i < PROCESSORS; i++) {
        int core = i % CORES;
        host.processors[i] = (rpi_processor){
            .number = i, .core = core % 4, .socket = core / 4, .node = core / 2};
    }
}

/* Bit i: processor i. */
static unsigned share(rpi_binding binding, int rank, int ranks) {
    rpi_bind_share own;
    unsigned bits = 0;
    CHECK_OK(rpi_bind_choose(binding, &host, rank, ranks, &own));
    for (int i = 0; i < PROCESSORS; i++)
        if (CPU_ISSET((size_t)i, &own.processors)) bits |= 1U << i;
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
    rpi_bind_share own;
    CHECK_FAILS(rpi_bind_choose(RPI_BIND_CORE, &host, 0, 9, &own), INVALID,
                "9 ranks and 8 cores");
}

/* Of the nodes whose processors a rank has, however it came to these. */
static void memory_is_that_of_the_processors(void) {
    static const struct {
        rpi_binding binding;
        int rank, ranks;
        uint64_t nodes;
        const char *text;
    } cases[] = {
        {RPI_BIND_CORE, 0, 8, 1, "processors 0,8 and memory of NUMA node 0"},
        {RPI_BIND_CORE, 1, 2, 12, "processors 4-7,12-15 and memory of NUMA nodes 2-3"},
        {RPI_BIND_SOCKET, 1, 2, 12, "processors 4-7,12-15 and memory of NUMA nodes 2-3"},
        {RPI_BIND_NUMA, 2, 4, 4, "processors 4-5,12-13 and memory of NUMA node 2"},
    };
    rpi_bind_share own;
    make_host();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_OK(rpi_bind_choose(cases[i].binding, &host, cases[i].rank, cases[i].ranks, &own));
        CHECK_EQ(own.nodes[0], cases[i].nodes);
        CHECK_MSG(strcmp(own.text, cases[i].text) == 0, "%s", own.text);
    }
    host.count = 1; /* a kernel that knows no nodes */
    host.processors[0].node = -1;
    CHECK_OK(rpi_bind_choose(RPI_BIND_CORE, &host, 0, 1, &own));
    CHECK(strcmp(own.text, "processor 0") == 0);
}

/* A host that hwloc makes up: two packages of two nodes each, of two cores with two threads. */
static void hosts_that_hwloc_describes(void) {
    static const struct {
        const char *host;
        rpi_binding binding;
        int rank, ranks;
        const char *text;
    } cases[] = {
        {"pack:2 numa:2 core:2 pu:2", RPI_BIND_CORE, 0, 8,
         "processors 0-1 and memory of NUMA node 0"},
        {"pack:2 numa:2 core:2 pu:2", RPI_BIND_CORE, 7, 8,
         "processors 14-15 and memory of NUMA node 3"},
        {"pack:2 numa:2 core:2 pu:2", RPI_BIND_NUMA, 1, 4,
         "processors 4-7 and memory of NUMA node 1"},
        {"pack:2 numa:2 core:2 pu:2", RPI_BIND_SOCKET, 1, 2,
         "processors 8-15 and memory of NUMA nodes 2-3"},
        /* Nodes that are larger than packages, and one for all. */
        {"numa:2 pack:2 core:3 pu:1", RPI_BIND_NUMA, 1, 2,
         "processors 6-11 and memory of NUMA node 1"},
        {"pack:4 core:2 pu:1", RPI_BIND_SOCKET, 2, 4,
         "processors 4-5 and memory of NUMA node 0"},
    };
    rpi_bind_share own;
    if (!rpi_hwloc_version()) {
        check_skip("this build has no hwloc");
        return;
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        setenv("HWLOC_SYNTHETIC", cases[i].host, 1);
        REQUIRE_OK(rpi_bind_host_find(&host));
        CHECK(host.is_made_up);
        CHECK_OK(rpi_bind_choose(cases[i].binding, &host, cases[i].rank, cases[i].ranks, &own));
        CHECK_MSG(strcmp(own.text, cases[i].text) == 0, "case %zu: %s", i, own.text);
    }
    CHECK_FAILS(rpi_bind_check(RPI_BIND_CORE, 9), INVALID, "9 ranks and 8 cores");
    unsetenv("HWLOC_SYNTHETIC");
}

static void this_host_has_processors(void) {
    rpi_bind_share own;
    cpu_set_t allowed;
    REQUIRE(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    REQUIRE_OK(rpi_bind_host_find(&host));
    CHECK(!host.is_made_up);
    for (rpi_binding binding = RPI_BIND_NONE; binding <= RPI_BIND_NUMA; binding++) {
        CHECK_OK(rpi_bind_choose(binding, &host, 0, 1, &own));
        CHECK(CPU_EQUAL(&own.processors, &allowed));
    }
}

/* What the kernel says of a process that has bound itself. */
static void a_process_is_bound(void) {
    rpi_bind_share own;
    REQUIRE_OK(rpi_bind_host_find(&host));
    REQUIRE_OK(rpi_bind_choose(RPI_BIND_CORE, &host, 0, 1, &own));
    CPU_ZERO(&own.processors);
    CPU_SET((size_t)host.processors[0].number, &own.processors);
    pid_t child = fork();
    if (child == 0) {
        cpu_set_t has;
        int mode = -1;
        uint64_t nodes[RPI_NODES_MAX / 64] = {0};
        if (!rpi_bind_self(&own)) _exit(errno == EPERM || errno == ENOSYS ? 2 : 1);
        if (sched_getaffinity(0, sizeof has, &has) != 0 || !CPU_EQUAL(&has, &own.processors))
            _exit(3);
        if (syscall(SYS_get_mempolicy, &mode, nodes, RPI_NODES_MAX + 1UL, NULL, 0UL) != 0)
            _exit(4);
        bool is_known = host.processors[0].node >= 0;
        _exit(!is_known || (mode == MPOL_PREFERRED && nodes[0] == own.nodes[0]) ? 0 : 5);
    }
    int status = 0;
    CHECK_EQ(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 2)
        check_skip("this container lets nobody bind memory");
    else
        CHECK_EQ(status, 0);
}

static void names(void) {
    rpi_binding binding;
    CHECK_OK(rpi_binding_find("numa", &binding));
    CHECK_EQ(binding, RPI_BIND_NUMA);
    CHECK_FAILS(rpi_binding_check("cores"), INVALID, "none, core, socket or numa");
}

CASES({"shares_are_as_named", shares_are_as_named},
      {"every_rank_has_some_and_cores_are_its_own", every_rank_has_some_and_cores_are_its_own},
      {"memory_is_that_of_the_processors", memory_is_that_of_the_processors},
      {"hosts_that_hwloc_describes", hosts_that_hwloc_describes},
      {"a_process_is_bound", a_process_is_bound},
      {"this_host_has_processors", this_host_has_processors}, {"names", names})
