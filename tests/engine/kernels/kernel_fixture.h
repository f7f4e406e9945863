/* What every test of a kernel does: its vector forms against the definition, AVX2 against
 * AVX-512 to the bit, one thread against three to the bit, nothing written where nothing
 * belongs; a backward kernel against finite differences of the forward one. */
#ifndef KERNEL_FIXTURE_H
#define KERNEL_FIXTURE_H

#include "base/rng.h"
#include "engine/backends/cpu/kernels/kernel.h"
#include "harness/check.h"

#include <stddef.h>

/* Elements behind every buffer; a kernel that writes there is found. */
enum { KERNEL_GUARD = 40, KERNEL_OUTPUTS = 6 };

/* Buffers live to the end of the process or until kernel_buffers_free(). */
float *kernel_floats(int64_t count); /* zeros */
/* Normal with this deviation, from check_seed() and `stream`. */
float *kernel_normal(int64_t count, double deviation, uint64_t stream);
/* The same rounded to bf16. */
uint16_t *kernel_bf16s(int64_t count, double deviation, uint64_t stream);
/* A size from 1 to `most`, often an odd one or one beside a multiple of 16. */
int64_t kernel_size(rpi_rng *rng, int64_t most);
void kernel_buffers_free(void);

/* An output: an element may differ from the definition's by absolute + relative |wanted|. */
typedef struct kernel_output {
    const char *name;
    void *data;
    int64_t count; /* without the guard */
    rp_dtype dtype;
    double relative, absolute;
} kernel_output;

typedef struct kernel_case {
    const char *name;
    void (*call)(const rpi_kernel_run *run, const void *args);
    const void *args;
    kernel_output outputs[KERNEL_OUTPUTS]; /* up to the first without data */
} kernel_case;

/* Leaves the definition's results in the outputs. What the outputs held before is what every
 * run starts from. */
void kernel_check(const kernel_case *it);

/* The loss is the sum of weights[i] y[i]; dx[i] is compared with its central difference over
 * x[i] for some i, within `tolerance` of the largest |dx|. `forward` writes y from x. */
typedef struct kernel_gradient {
    const char *name;
    void (*forward)(const rpi_kernel_run *run, const void *args);
    const void *args;
    float *x;
    const float *dx;
    int64_t count;
    const float *y, *weights;
    int64_t outputs;
    double step, tolerance;
} kernel_gradient;

void kernel_check_gradient(const kernel_gradient *it);

#endif
