/* The kernels of the cpu backend, timed one by one: what bench/kernels.c needs of each. */
#ifndef BENCH_KERNELS_H
#define BENCH_KERNELS_H

#include "engine/backends/cpu/kernels/kernel.h"

/* One timing: `call(run, args)` moves `bytes` to and from memory and computes `flops`. */
typedef struct bench_kernel {
    const char *name;
    void (*call)(const rpi_kernel_run *run, const void *args);
    const void *args;
    double bytes, flops; /* 0: not counted */
} bench_kernel;

enum { BENCH_KERNELS = 160 };

typedef struct bench_list {
    bench_kernel at[BENCH_KERNELS];
    int count;
} bench_list;

void bench_add(bench_list *list, bench_kernel kernel);
/* Memory of the whole run, filled with normal numbers of deviation 1. */
float *bench_floats(int64_t count);
void *bench_copy(const void *args, size_t bytes);
#define BENCH_ARGS(type, ...) bench_copy(&(type){__VA_ARGS__}, sizeof(type))

/* Each adds the kernels of one header. */
void bench_activations(bench_list *list);
void bench_attention(bench_list *list);
void bench_norms(bench_list *list);
void bench_optimizers(bench_list *list);
void bench_sgemm(bench_list *list);
void bench_matmul(bench_list *list);
void bench_winograd(bench_list *list);
void bench_tokens(bench_list *list);
void bench_cross_entropy(bench_list *list);

#endif
