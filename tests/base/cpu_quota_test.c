/* What control groups allow, over made-up trees of /proc and /sys/fs/cgroup. A container
 * engine, an init system or a scheduler that lays them out otherwise: add a row. */
#include "base/cpu_quota.h"

#include "base/cpu.h"
#include "base/folder.h"
#include "harness/check.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#define V1(top)                                                                                \
    "33 23 0:29 " top " /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct\n"
#define V2(top)                                                                                \
    "25 23 0:22 " top " /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
#define OTHERS                                                                                 \
    "22 1 8:1 / / rw shared:1 - ext4 /dev/root rw\n"                                           \
    "34 23 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"                        \
    "35 23 0:31 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n"
#define CPU  "/sys/fs/cgroup/cpu,cpuacct"
#define CG   "/sys/fs/cgroup"
#define NONE INFINITY

enum { FILES = 6 };
static const struct {
    const char *what, *groups, *mounts;
    double cores;
    struct {
        const char *path, *text;
    } files[FILES];
} trees[] = {
    {"no /proc", NULL, NULL, NONE, {{0}}},
    {"no mounts", "0::/\n", NULL, NONE, {{CG "/cpu.max", "100000 100000\n"}}},
    {"nothing but the kernel's own", "0::/\n", OTHERS V2("/"), NONE, {{0}}},

    {"v2, a container that sees itself as the root",
     "0::/\n",
     OTHERS V2("/"),
     1.5,
     {{CG "/cpu.max", "150000 100000\n"}}},
    {"v2, max", "0::/a\n", V2("/"), NONE, {{CG "/a/cpu.max", "max 100000\n"}}},
    {"v2, another period", "0::/a\n", V2("/"), 3, {{CG "/a/cpu.max", "60000 20000\n"}}},
    {"v2, a tenth of a core", "0::/a\n", V2("/"), .1, {{CG "/a/cpu.max", "10000 100000\n"}}},
    {"v2, the parent is tighter",
     "0::/user.slice/job/step\n",
     V2("/"),
     2,
     {{CG "/user.slice/job/step/cpu.max", "400000 100000\n"},
      {CG "/user.slice/job/cpu.max", "max 100000\n"},
      {CG "/user.slice/cpu.max", "200000 100000\n"}}},
    {"v2, the parent is wider",
     "0::/user.slice/job\n",
     V2("/"),
     2,
     {{CG "/user.slice/job/cpu.max", "200000 100000\n"},
      {CG "/user.slice/cpu.max", "800000 100000\n"}}},
    {"v2, no controller in the group itself",
     "0::/a/b\n",
     V2("/"),
     4,
     {{CG "/a/cpu.max", "400000 100000\n"}}},
    {"v2, a sibling's limit is none of ours",
     "0::/a/b\n",
     V2("/"),
     NONE,
     {{CG "/a/bb/cpu.max", "100000 100000\n"}}},
    {"v2, a part of the tree is mounted, which the host names in full",
     "0::/docker/7\n",
     V2("/docker/7"),
     2,
     {{CG "/cpu.max", "200000 100000\n"}, {CG "/docker/7/cpu.max", "100000 100000\n"}}},
    {"v2, below what is mounted",
     "0::/docker/7/init\n",
     V2("/docker/7"),
     1,
     {{CG "/cpu.max", "200000 100000\n"}, {CG "/init/cpu.max", "100000 100000\n"}}},
    {"v2, a name that begins with another",
     "0::/docker/77\n",
     V2("/docker/7"),
     2,
     {{CG "/cpu.max", "200000 100000\n"}, {CG "7/cpu.max", "100000 100000\n"}}},
    {"v2, a group outside of the namespace",
     "0::/../../other\n",
     V2("/"),
     2,
     {{CG "/cpu.max", "200000 100000\n"}}},
    {"v2, the group is gone",
     "0::/a/b (deleted)\n",
     V2("/"),
     2,
     {{CG "/a/cpu.max", "200000 100000\n"}}},
    {"v2, colons in a name", "0::/a:b\n", V2("/"), 2, {{CG "/a:b/cpu.max", "200000 100000\n"}}},
    {"v2, blanks where it is mounted",
     "0::/a\n",
     "25 23 0:22 / /my\\040groups rw - cgroup2 none rw\n",
     2,
     {{"/my groups/a/cpu.max", "200000 100000\n"}}},
    {"v2, mounted twice: the one that shows the group counts",
     "0::/a/b\n",
     "25 23 0:22 /c /elsewhere rw - cgroup2 none rw\n" V2("/a"),
     1,
     {{CG "/b/cpu.max", "100000 100000\n"}, {"/elsewhere/cpu.max", "300000 100000\n"}}},
    {"v2, nonsense", "0::/a\n", V2("/"), NONE, {{CG "/a/cpu.max", "many\n"}}},
    {"v2, zeros", "0::/a\n", V2("/"), NONE, {{CG "/a/cpu.max", "0 0\n"}}},
    {"v2, empty", "0::/a\n", V2("/"), NONE, {{CG "/a/cpu.max", ""}}},

    {"v1, no quota",
     "4:cpu,cpuacct:/\n",
     OTHERS V1("/"),
     NONE,
     {{CPU "/cpu.cfs_quota_us", "-1\n"}, {CPU "/cpu.cfs_period_us", "100000\n"}}},
    {"v1, of one core",
     "5:cpuset:/x\n4:cpu,cpuacct:/redpoll-quota\n0::/\n",
     OTHERS V1("/"),
     1,
     {{CPU "/redpoll-quota/cpu.cfs_quota_us", "100000\n"},
      {CPU "/redpoll-quota/cpu.cfs_period_us", "100000\n"},
      {CPU "/cpu.cfs_quota_us", "-1\n"}}},
    {"v1, another period",
     "4:cpu,cpuacct:/a\n",
     V1("/"),
     2.5,
     {{CPU "/a/cpu.cfs_quota_us", "25000\n"}, {CPU "/a/cpu.cfs_period_us", "10000\n"}}},
    {"v1, the grandparent is tightest",
     "4:cpuacct,cpu:/a/b/c\n",
     V1("/"),
     2,
     {{CPU "/a/b/c/cpu.cfs_quota_us", "300000\n"},
      {CPU "/a/b/cpu.cfs_quota_us", "-1\n"},
      {CPU "/a/cpu.cfs_quota_us", "200000\n"}}},
    {"v1, a container with the host's names",
     "4:cpu,cpuacct:/docker/7\n",
     V1("/docker/7"),
     3,
     {{CPU "/cpu.cfs_quota_us", "300000\n"}, {CPU "/cpu.cfs_period_us", "100000\n"}}},
    {"v1, a container whose group the mount does not show",
     "4:cpu,cpuacct:/kubepods/pod1/c2\n",
     V1("/kubepods/pod1/c3"),
     3,
     {{CPU "/cpu.cfs_quota_us", "300000\n"}}},
    {"v1, cpuacct alone limits nothing",
     "4:cpuacct:/a\n",
     OTHERS,
     NONE,
     {{CG "/cpuacct/a/cpu.cfs_quota_us", "100000\n"}}},
    {"v1 by its name alone",
     "1:cpu:/a\n",
     "33 23 0:29 / " CG "/cpu rw - cgroup cgroup rw,cpu\n",
     2,
     {{CG "/cpu/a/cpu.cfs_quota_us", "200000\n"}}},
    {"both versions: the tighter counts",
     "4:cpu,cpuacct:/a\n0::/b\n",
     V1("/") "25 23 0:22 / " CG "/unified rw - cgroup2 cgroup2 rw\n",
     1,
     {{CPU "/a/cpu.cfs_quota_us", "200000\n"}, {CG "/unified/b/cpu.max", "100000 100000\n"}}},
};

static void put(const char *root, const char *path, const char *text) {
    char whole[512], folder[512];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(whole, '/') - whole), whole);
    REQUIRE_OK(rpi_folder_make(folder));
    FILE *file = fopen(whole, "w");
    REQUIRE(file != NULL);
    CHECK(fputs(text, file) >= 0);
    CHECK(fclose(file) == 0);
}

static void quotas_are_found(void) {
    for (size_t i = 0; i < sizeof trees / sizeof trees[0]; i++) {
        char root[256];
        snprintf(root, sizeof root, "%s/%zu", check_folder(), i);
        if (trees[i].groups) put(root, "/proc/self/cgroup", trees[i].groups);
        if (trees[i].groups) put(root, "/proc/71/cgroup", trees[i].groups);
        if (trees[i].mounts) put(root, "/proc/self/mountinfo", trees[i].mounts);
        for (int f = 0; f < FILES && trees[i].files[f].path; f++)
            put(root, trees[i].files[f].path, trees[i].files[f].text);
        double own = rpi_cpu_quota(root, 0), others = rpi_cpu_quota(root, 71);
        CHECK_MSG(own == trees[i].cores, "%s: %g, not %g", trees[i].what, own, trees[i].cores);
        CHECK_MSG(others == own, "%s: %g of another process", trees[i].what, others);
        CHECK(rpi_cpu_quota(root, 72) == INFINITY);
    }
}

/* A path that is longer than any is no reason to read beyond it. */
static void long_names_are_survived(void) {
    char root[256], line[20000] = "0::/";
    snprintf(root, sizeof root, "%s/long", check_folder());
    memset(line + 4, 'a', sizeof line - 5);
    line[sizeof line - 1] = '\0';
    put(root, "/proc/self/cgroup", line);
    put(root, "/proc/self/mountinfo", V2("/") V1("/"));
    put(root, CG "/cpu.max", "200000 100000\n");
    CHECK(rpi_cpu_quota(root, 0) == INFINITY);
}

static void this_process_has_cores(void) {
    int own = rpi_cpu_count();
    CHECK(own >= 1);
    CHECK_EQ(rpi_cpu_count_of(getpid()), own);
    CHECK_EQ(rpi_cpu_count_of(0), 0);
    CHECK_EQ(rpi_cpu_count_of(INT64_C(1) << 40), 0);
}

CASES({"quotas_are_found", quotas_are_found},
      {"long_names_are_survived", long_names_are_survived},
      {"this_process_has_cores", this_process_has_cores})
