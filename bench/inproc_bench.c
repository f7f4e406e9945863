/* All-reduce between threads of one process, as tests and programs with a communicator a thread
 * have it: no memory that processes share, no sockets.
 *
 *     inproc_bench THREADS BYTES ITERS
 *
 * Prints the median of the repeats' seconds, by the first thread's clock. */
#include "base/clock.h"
#include "base/median.h"
#include "redpoll/comm.h"
#include "redpoll/status.h"
#include "redpoll/store.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { WARMUP = 5, THREADS_MAX = 64 };

typedef struct rank_thread {
    pthread_t thread;
    const rp_store *store;
    int rank, world, iters;
    size_t bytes;
    double *seconds; /* of the first rank */
    rp_status status;
    char why[256];
} rank_thread;

static rp_status reduce_often(rp_comm *comm, rank_thread *self, float *values) {
    const rp_segment segment = {
        .data = values, .count = self->bytes / sizeof *values, .dtype = RP_F32};
    for (int i = -WARMUP; i < self->iters; i++) {
        rp_status status = rp_barrier(comm);
        int64_t start = rpi_now_ns();
        if (status == RP_OK) status = rp_all_reduce(comm, &segment, 1, NULL);
        if (status != RP_OK) return status;
        if (i >= 0 && self->rank == 0) self->seconds[i] = rpi_seconds(rpi_now_ns() - start);
    }
    return RP_OK;
}

static void *run_rank(void *context) {
    rank_thread *self = context;
    rp_comm *comm = NULL;
    const rp_comm_options options = RP_COMM_OPTIONS(.transport = "inproc");
    float *values = calloc(1, self->bytes);
    self->status = values ? RP_OK : RP_NOMEM;
    if (values)
        self->status = rp_comm_create(self->store, self->rank, self->world, &options, &comm);
    if (self->status == RP_OK) self->status = reduce_often(comm, self, values);
    snprintf(self->why, sizeof self->why, "%s", rp_last_error()->message);
    rp_comm_destroy(comm);
    free(values);
    return NULL;
}

static int run_all(rank_thread *ranks, int world) {
    for (int i = 0; i < world; i++)
        if (pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]) != 0) abort();
    int failed = -1;
    for (int i = 0; i < world; i++) {
        pthread_join(ranks[i].thread, NULL);
        if (ranks[i].status != RP_OK) failed = i;
    }
    if (failed >= 0) fprintf(stderr, "inproc_bench: %s\n", ranks[failed].why);
    return failed >= 0;
}

int main(int argc, char **argv) {
    static rank_thread ranks[THREADS_MAX];
    const int world = argc == 4 ? atoi(argv[1]) : 0, iters = argc == 4 ? atoi(argv[3]) : 0;
    if (world < 1 || world > THREADS_MAX || iters < 1 || atoll(argv[2]) < 4) {
        fprintf(stderr, "usage: inproc_bench THREADS BYTES ITERS\n");
        return 2;
    }
    rp_store store = {0};
    if (rp_store_open_local(&store) != RP_OK) return 1;
    double *seconds = calloc((size_t)iters, sizeof *seconds);
    if (!seconds) abort();
    for (int i = 0; i < world; i++)
        ranks[i] = (rank_thread){.store = &store,
                                 .rank = i,
                                 .world = world,
                                 .iters = iters,
                                 .bytes = (size_t)atoll(argv[2]),
                                 .seconds = seconds};
    int failed = run_all(ranks, world);
    if (!failed) printf("%.9f\n", rpi_median(seconds, iters));
    rp_store_close(&store);
    free(seconds);
    return failed;
}
