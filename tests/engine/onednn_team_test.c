/* The workers of the team: there when asked for, free, and oneDNN's, too. */
#include "engine/onednn/onednn_team.h"

#include "harness/check.h"

#include <dirent.h>
#include <oneapi/dnnl/dnnl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

enum { WORKERS = 2 };

int omp_get_max_threads(void); /* ours (onednn_team.c) */

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

/* A thread that has not said how many it wants has what the environment says. */
static void the_environment_says_how_many(void) {
    setenv("OMP_NUM_THREADS", "7", 1);
    CHECK_EQ(omp_get_max_threads(), 7);
    setenv("OMP_NUM_THREADS", "none", 1);
    CHECK(omp_get_max_threads() >= 1);
    unsetenv("OMP_NUM_THREADS");
    rpi_dnn_team_enter(1);
    CHECK_EQ(omp_get_max_threads(), 1);
}

static void one_thread_needs_no_workers(void) {
    rpi_dnn_team_enter(1);
    census seen = take_census();
    CHECK_EQ(seen.threads, 0);
}

static bool has_places(void) {
    const char *bind = getenv("OMP_PROC_BIND");
    return bind && strcmp(bind, "true") == 0;
}

static void nobody_is_pinned(void) {
    cpu_set_t before, after;
    if (has_places()) {
        check_skip("places are asked for");
        return;
    }
    REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
    rpi_dnn_team_enter(WORKERS + 1);
    rpi_dnn_team_enter(WORKERS + 1); /* nothing more to do */
    REQUIRE(sched_getaffinity(0, sizeof after, &after) == 0);
    CHECK(CPU_EQUAL(&before, &after));
    census seen = take_census();
    CHECK_EQ(seen.threads, WORKERS);
    if (CPU_COUNT(&before) > 1) CHECK_EQ(seen.pinned, 0);
}

/* libgomp has bound the first thread before main(). */
static void places_are_heeded(void) {
    int processors = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (!has_places() || processors < 2) {
        check_skip("no places are asked for, or there is one");
        return;
    }
    rpi_dnn_team_enter(2);
    census seen = take_census();
    cpu_set_t first;
    REQUIRE(sched_getaffinity(0, sizeof first, &first) == 0);
    CHECK_EQ(seen.threads, 1);
    CHECK_EQ(seen.pinned, 1);
    CPU_AND(&first, &first, &seen.cores);
    CHECK_EQ(CPU_COUNT(&first), 0);
}

/* oneDNN's regions run on the same workers: none are started beside them. */
static void onednn_has_no_threads_of_its_own(void) {
    enum { SIDE = 512 };
    static float a[SIDE * SIDE], b[SIDE * SIDE], c[SIDE * SIDE];
    rpi_dnn_team_enter(WORKERS + 1);
    for (int i = 0; i < SIDE * SIDE; i++) a[i] = b[i] = 1;
    CHECK_EQ(dnnl_sgemm('N', 'N', SIDE, SIDE, SIDE, 1, a, SIDE, b, SIDE, 0, c, SIDE), 0);
    for (int i = 0; i < SIDE * SIDE; i++)
        if (c[i] != SIDE) CHECK_MSG(false, "element %d is %g", i, (double)c[i]);
    census seen = take_census();
    CHECK_EQ(seen.threads, WORKERS);
}

CASES({"the_environment_says_how_many", the_environment_says_how_many},
      {"one_thread_needs_no_workers", one_thread_needs_no_workers},
      {"places_are_heeded", places_are_heeded}, {"nobody_is_pinned", nobody_is_pinned},
      {"onednn_has_no_threads_of_its_own", onednn_has_no_threads_of_its_own})
