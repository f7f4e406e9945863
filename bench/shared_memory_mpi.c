/* All-reduce of floats by an MPI library, in place, measured as `redpoll bench` measures its
 * own:
 *
 *     mpiexec -n 2 shared_memory_mpi LIBMPI BYTES ITERS
 *
 * LIBMPI is a library of the common ABI of MPICH, Intel MPI and others (libmpi.so.12), which is
 * opened at run time: nothing of MPI is needed to build this. Ranks of one host agree on an
 * instant and begin then. Rank 0 prints the median and the least of the repeats' seconds, of
 * the slower rank. */
#include <dlfcn.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Handles of that ABI. */
enum {
    COMM_WORLD = 0x44000000,
    MPI_A_FLOAT = 0x4c00040a,
    MPI_A_DOUBLE = 0x4c00080b,
    MPI_THE_SUM = 0x58000003,
    MPI_THE_MAX = 0x58000001
};
#define IN_PLACE ((void *)(intptr_t)-1)
enum { WARMUP = 3 };

typedef struct mpi {
    int (*init)(int *argc, char ***argv);
    int (*finalize)(void);
    int (*rank)(int comm, int *rank);
    int (*barrier)(int comm);
    int (*all_reduce)(const void *in, void *out, int count, int dtype, int op, int comm);
} mpi;

static void *find(void *library, const char *name) {
    void *function = dlsym(library, name);
    if (function) return function;
    fprintf(stderr, "shared_memory_mpi: no %s: %s\n", name, dlerror());
    exit(1);
}

static mpi load(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        fprintf(stderr, "shared_memory_mpi: %s\n", dlerror());
        exit(1);
    }
    mpi m;
    *(void **)&m.init = find(library, "MPI_Init");
    *(void **)&m.finalize = find(library, "MPI_Finalize");
    *(void **)&m.rank = find(library, "MPI_Comm_rank");
    *(void **)&m.barrier = find(library, "MPI_Barrier");
    *(void **)&m.all_reduce = find(library, "MPI_Allreduce");
    return m;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double most(const mpi *m, double value) {
    m->all_reduce(IN_PLACE, &value, 1, MPI_A_DOUBLE, MPI_THE_MAX, COMM_WORLD);
    return value;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double measure_once(const mpi *m, int rank, float *data, int count) {
    for (int i = 0; i < count; i++) data[i] = (float)((i + rank) % 1000);
    m->barrier(COMM_WORLD);
    double start = most(m, now() + 50e-6);
    while (now() < start) sched_yield();
    m->all_reduce(IN_PLACE, data, count, MPI_A_FLOAT, MPI_THE_SUM, COMM_WORLD);
    return most(m, now() - start);
}

static void measure(const mpi *m, float *data, int count, double *seconds, int iters) {
    int rank = 0;
    m->rank(COMM_WORLD, &rank);
    for (int i = -WARMUP; i < iters; i++) {
        double took = measure_once(m, rank, data, count);
        if (i >= 0) seconds[i] = took;
    }
    qsort(seconds, (size_t)iters, sizeof *seconds, by_size);
    if (rank == 0) printf("%.9f %.9f\n", seconds[iters / 2], seconds[0]);
}

int main(int argc, char **argv) {
    int iters = argc > 3 ? atoi(argv[3]) : 0;
    if (iters < 1) {
        fputs("usage: mpiexec -n 2 shared_memory_mpi LIBMPI BYTES ITERS\n", stderr);
        return 2;
    }
    mpi m = load(argv[1]);
    int count = (int)(strtoull(argv[2], NULL, 10) / sizeof(float));
    double *seconds = calloc((size_t)iters, sizeof *seconds);
    float *data = calloc((size_t)count + 1, sizeof *data);
    int failed = !seconds || !data;
    if (!failed) {
        m.init(&argc, &argv);
        measure(&m, data, count, seconds, iters);
        m.finalize();
    }
    free(seconds);
    free(data);
    return failed;
}
