/* How much memory a host has, and control groups allow, over made-up trees. Add a row. */
#include "base/memory_limit.h"

#include "base/folder.h"
#include "harness/check.h"

#include <math.h>
#include <string.h>

#define CG "/sys/fs/cgroup"
#define V2 "25 23 0:22 / " CG " rw shared:4 - cgroup2 cgroup2 rw\n"
#define V1 "33 23 0:29 / " CG "/memory rw - cgroup cgroup rw,memory\n"
#define GB "MemTotal:        1048576 kB\nMemFree:  1 kB\n"

static const struct {
    const char *what, *total, *groups, *mounts, *path, *text;
    double bytes;
} trees[] = {
    {"nothing is seen", NULL, NULL, NULL, NULL, NULL, INFINITY},
    {"no groups", GB, NULL, NULL, NULL, NULL, 1 << 30},
    {"v2, less", GB, "0::/a\n", V2, CG "/a/memory.max", "1000\n", 1000},
    {"v2, above", GB, "0::/a/b\n", V2, CG "/a/memory.max", "1000\n", 1000},
    {"v2, more", GB, "0::/a\n", V2, CG "/a/memory.max", "9999999999\n", 1 << 30},
    {"v2, max", GB, "0::/a\n", V2, CG "/a/memory.max", "max\n", 1 << 30},
    {"v1", GB, "4:memory:/a\n", V1, CG "/memory/a/memory.limit_in_bytes", "1000\n", 1000},
    {"v1, none", GB, "4:memory:/a\n", V1, CG "/memory/a/memory.limit_in_bytes",
     "9223372036854771712\n", 1 << 30},
    {"v1, another controller", GB, "4:cpu:/a\n", V1, CG "/memory/a/memory.limit_in_bytes",
     "1000\n", 1 << 30},
};

static void put(const char *root, const char *path, const char *text) {
    char whole[512], folder[512];
    if (!path || !text) return;
    snprintf(whole, sizeof whole, "%s%s", root, path);
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(whole, '/') - whole), whole);
    REQUIRE_OK(rpi_folder_make(folder));
    FILE *file = fopen(whole, "w");
    REQUIRE(file != NULL);
    CHECK(fputs(text, file) >= 0);
    CHECK(fclose(file) == 0);
}

static void limits_are_found(void) {
    for (size_t i = 0; i < sizeof trees / sizeof trees[0]; i++) {
        char root[256];
        snprintf(root, sizeof root, "%s/%zu", check_folder(), i);
        put(root, "/proc/meminfo", trees[i].total);
        put(root, "/proc/self/cgroup", trees[i].groups);
        put(root, "/proc/self/mountinfo", trees[i].mounts);
        put(root, trees[i].path, trees[i].text);
        double bytes = rpi_memory_limit(root);
        CHECK_MSG(bytes == trees[i].bytes, "%s: %g, not %g", trees[i].what, bytes,
                  trees[i].bytes);
    }
}

static void this_process_holds_some(void) {
    CHECK(rpi_memory_resident() > 0);
    CHECK(rpi_memory_resident() < rpi_memory_limit(""));
}

CASES({"limits are found", limits_are_found},
      {"this process holds some", this_process_holds_some})
