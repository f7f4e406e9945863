#include "cli/cores.h"

#include "harness/check.h"

static const struct {
    const char *what;
    int own, all, ranks, share;
} hosts[] = {
    {"nobody is bound", 16, 16, 4, 4},
    {"more ranks than cores", 2, 2, 4, 1},
    {"a core each", 1, 16, 4, 1},
    {"four cores each", 4, 16, 4, 4},
    {"four cores each, others idle", 4, 64, 4, 4},
    {"two ranks on each socket", 8, 16, 4, 4},
    {"one rank on half of them", 8, 16, 1, 8},
    {"a launcher with fewer cores than its ranks", 16, 1, 4, 4},
    {"an unknown launcher", 16, 0, 4, 4},
};

static void cores_are_shared(void) {
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        int share = rpi_share_of_cores(hosts[i].own, hosts[i].all, hosts[i].ranks);
        CHECK_MSG(share == hosts[i].share, "%s: %d", hosts[i].what, share);
    }
}

static void this_process_has_some(void) {
    CHECK(rpi_own_share_of_cores(1) >= 1);
    CHECK_EQ(rpi_own_share_of_cores(1 << 20), 1);
}

CASES({"cores_are_shared", cores_are_shared}, {"this_process_has_some", this_process_has_some})
