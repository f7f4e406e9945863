#include "engine/onednn/onednn_team.h"

#include "base/cpu.h"
#include "engine/team/team.h"

#include <omp.h>
#include <sched.h>
#include <stdlib.h>

static _Thread_local int settled_threads, settled_size; /* asked for, and what that gave */

/* ---- where the environment wants them ---- */

enum { PROCESSORS = 4096 };

/* libgomp reads what the environment asks for, and has bound the first thread by it. */
static void take_place(void *context) {
    int member = rpi_team_member(), places = omp_get_num_places(), numbers[PROCESSORS];
    (void)context;
    if (member == 0) return;
    int place = member % places, count = omp_get_place_num_procs(place);
    cpu_set_t set;
    CPU_ZERO(&set);
    if (count < 1 || count > PROCESSORS) return;
    omp_get_place_proc_ids(place, numbers);
    for (int i = 0; i < count; i++) CPU_SET((size_t)numbers[i], &set);
    (void)sched_setaffinity(0, sizeof set, &set); /* a refusal costs speed only */
}

void rpi_dnn_team_enter(int threads) {
    if (settled_threads == threads) return;
    settled_size = rpi_team_grow(threads);
    if (settled_size > 1 && omp_get_num_places() > 0)
        rpi_team_gang(settled_size, take_place, NULL);
    settled_threads = threads;
}

/* ---- what compiled regions call: seen by oneDNN, too (onednn_team.list) ---- */

#pragma GCC visibility push(default)

void GOMP_parallel(void (*body)(void *), void *context, unsigned threads, unsigned flags);
void GOMP_barrier(void);

void GOMP_parallel(void (*body)(void *), void *context, unsigned threads, unsigned flags) {
    (void)flags; /* a binding */
    int wanted = threads > 0 && threads < RPI_TEAM_MOST ? (int)threads : omp_get_max_threads();
    rpi_team_gang(wanted, body, context);
}

void GOMP_barrier(void) {
    rpi_team_barrier();
}

int omp_get_thread_num(void) {
    return rpi_team_member();
}

int omp_get_num_threads(void) {
    return rpi_team_members();
}

int omp_in_parallel(void) {
    return rpi_team_in_body();
}

/* Of a thread that has said nothing: what the environment says, as ever. */
int omp_get_max_threads(void) {
    if (settled_size > 0) return settled_size;
    const char *told = getenv("OMP_NUM_THREADS");
    long threads = told ? strtol(told, NULL, 10) : 0;
    return threads > 0 && threads <= RPI_TEAM_MOST ? (int)threads : rpi_cpu_count();
}

#pragma GCC visibility pop
