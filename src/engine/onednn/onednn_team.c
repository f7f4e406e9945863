#include "engine/onednn/onednn_team.h"

#include <omp.h>
#include <sched.h>
#include <stdbool.h>

/* A team belongs to the thread that starts its regions, so what was set up is kept with it. */
static _Thread_local int settled_threads, settled_size; /* asked for, and what that gave */

/* The rank-th core of `allowed`, not counting `taken`; -1 when there is none. */
static int core_at(const cpu_set_t *allowed, int taken, int rank) {
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (core == taken || !CPU_ISSET(core, allowed)) continue;
        if (rank-- == 0) return core;
    }
    return -1;
}

static void pin_to(int core) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    /* A refusal costs speed only. */
    (void)sched_setaffinity(0, sizeof one, &one);
}

static void pin_workers(int threads) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    if (CPU_COUNT(&allowed) != threads || omp_get_proc_bind() != omp_proc_bind_false) return;
    int caller = sched_getcpu();
#pragma omp parallel num_threads(threads)
    {
        int worker = omp_get_thread_num() - 1;
        int core = worker < 0 ? -1 : core_at(&allowed, caller, worker);
        if (core >= 0) pin_to(core);
    }
}

void rpi_dnn_team_enter(int threads) {
    if (settled_threads == threads && omp_get_max_threads() == settled_size) return;
    omp_set_num_threads(threads);
    if (threads > 1) pin_workers(threads);
    settled_threads = threads;
    settled_size = omp_get_max_threads();
}
