/* The workers of the team: there when asked for, one to a core, and the caller left alone. */
#include "engine/onednn/onednn_team.h"

#include "base/cpu.h"
#include "harness/check.h"

#include <dirent.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct census {
    int threads, pinned; /* of this process, the main thread not counted */
    cpu_set_t cores;     /* of the pinned ones */
} census;

/* From the kernel's list of threads, so that the test itself is free of OpenMP. */
static census take_census(void) {
    census seen = {0};
    CPU_ZERO(&seen.cores);
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks) return seen;
    for (struct dirent *entry = readdir(tasks); entry; entry = readdir(tasks)) {
        int task = atoi(entry->d_name);
        cpu_set_t allowed;
        if (task <= 0 || task == getpid()) continue;
        seen.threads++;
        if (sched_getaffinity(task, sizeof allowed, &allowed) != 0) continue;
        if (CPU_COUNT(&allowed) != 1) continue;
        seen.pinned++;
        CPU_OR(&seen.cores, &seen.cores, &allowed);
    }
    closedir(tasks);
    return seen;
}

static void one_thread_needs_no_workers(void) {
    rpi_dnn_team_enter(1);
    census seen = take_census();
    CHECK_EQ(seen.threads, 0);
}

static void workers_fill_the_cores(void) {
    cpu_set_t before, after;
    int cores = rpi_cpu_count();
    if (cores < 2) {
        check_skip("one core");
        return;
    }
    REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
    rpi_dnn_team_enter(cores);
    rpi_dnn_team_enter(cores); /* nothing more to do */
    REQUIRE(sched_getaffinity(0, sizeof after, &after) == 0);
    CHECK(CPU_EQUAL(&before, &after));
    census seen = take_census();
    CHECK_EQ(seen.threads, cores - 1);
    CHECK_EQ(seen.pinned, cores - 1);
    CHECK_EQ(CPU_COUNT(&seen.cores), cores - 1);
}

CASES({"one_thread_needs_no_workers", one_thread_needs_no_workers},
      {"workers_fill_the_cores", workers_fill_the_cores})
