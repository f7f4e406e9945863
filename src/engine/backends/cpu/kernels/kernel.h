/* What the kernels of the cpu backend have in common: how a call is run, and what a matrix is.
 *
 * A kernel is a pure function over pointers, sizes and strides; it knows no graph and allocates
 * nothing. Each has a definition in plain loops that computes in double (the `scalar` one, the
 * oracle of the tests), and one vector form that is compiled for AVX2 and for AVX-512. The
 * vector form thinks in 16 lanes on both, so that both give the same bits (simd.h).
 *
 * Work is cut over threads by rows, heads or columns, never through a sum: the bits do not
 * depend on the number of threads. Pointers are owned by the caller; an output may be an input
 * where the header of the kernel says so. Sizes of 0 are allowed and touch nothing. */
#ifndef RPI_ENGINE_KERNEL_H
#define RPI_ENGINE_KERNEL_H

#include "base/cpu.h"

#include "redpoll/dtype.h"

#include <stdbool.h>
#include <stdint.h>

/* How to run a kernel. */
typedef struct rpi_kernel_run {
    int threads; /* 1 or more; members of the caller's team (engine/team/team.h) */
    rpi_isa isa; /* rpi_cpu_isa(), or less */
} rpi_kernel_run;

/* Rows of f32 or bf16 elements; consecutive rows start `stride` elements apart. A kernel writes
 * only into its outputs, whatever the missing const says. */
typedef struct rpi_kernel_rows {
    void *data; /* NULL where an argument is optional and absent */
    int64_t stride;
    rp_dtype dtype; /* RP_F32 or RP_BF16 */
} rpi_kernel_rows;

static inline rpi_kernel_rows rpi_kernel_f32(const float *data, int64_t stride) {
    return (rpi_kernel_rows){(void *)data, stride, RP_F32};
}

static inline rpi_kernel_rows rpi_kernel_bf16(const uint16_t *data, int64_t stride) {
    return (rpi_kernel_rows){(void *)data, stride, RP_BF16};
}

/* Heads by strides, in elements: batch b, token t, head h start at
 * data + b * batch + t * token + h * head. */
typedef struct rpi_kernel_heads {
    void *data;
    int64_t batch, token, head;
    rp_dtype dtype; /* RP_F32 or RP_BF16 */
} rpi_kernel_heads;

/* ---- inside the kernels ---- */

/* Units [begin, end) of the work that `args` describes. */
typedef void (*rpi_kernel_body)(const void *args, int64_t begin, int64_t end);

/* Runs the body over [0, count), cut at multiples of `grain` into parts that the threads share;
 * into how many depends on who else wants their processors, and no bit of a result on it. */
void rpi_kernel_parallel(const rpi_kernel_run *run, int64_t count, int64_t grain,
                         const rpi_kernel_body bodies[RPI_ISA_COUNT], const void *args);

/* The three forms of a body: RPI_KERNEL_DECLARE(x) declares them, RPI_KERNEL_BODIES(x) is their
 * table. Without vector forms the definition stands in every place. */
#define RPI_KERNEL_DECLARE_ONE(name) void name(const void *args, int64_t begin, int64_t end)
#if defined(__x86_64__)
#    define RPI_KERNEL_DECLARE(name)                                                           \
        RPI_KERNEL_DECLARE_ONE(rpi_##name##_scalar);                                           \
        RPI_KERNEL_DECLARE_ONE(rpi_##name##_avx2);                                             \
        RPI_KERNEL_DECLARE_ONE(rpi_##name##_avx512)
#    define RPI_KERNEL_BODIES(name)                                                            \
        { rpi_##name##_scalar, rpi_##name##_avx2, rpi_##name##_avx512 }
#else
#    define RPI_KERNEL_DECLARE(name) RPI_KERNEL_DECLARE_ONE(rpi_##name##_scalar)
#    define RPI_KERNEL_BODIES(name)                                                            \
        { rpi_##name##_scalar, rpi_##name##_scalar, rpi_##name##_scalar }
#endif

/* Element-wise kernels cut a long row into pieces, so that one row keeps all threads busy. */
enum { RPI_KERNEL_PIECE = 4096 };

static inline int64_t rpi_kernel_pieces(int64_t cols) {
    return (cols + RPI_KERNEL_PIECE - 1) / RPI_KERNEL_PIECE;
}

/* ---- elements one by one, for the definitions ---- */

static inline float rpi_bf16_to_f32(uint16_t bits) {
    union {
        uint32_t bits;
        float value;
    } wide = {(uint32_t)bits << 16};
    return wide.value;
}

/* To nearest, ties to even; a NaN stays one. */
static inline uint16_t rpi_f32_to_bf16(float value) {
    union {
        float value;
        uint32_t bits;
    } wide = {value};
    if (value != value) return (uint16_t)(wide.bits >> 16 | 0x40);
    return (uint16_t)((wide.bits + 0x7fff + (wide.bits >> 16 & 1)) >> 16);
}

static inline float rpi_kernel_get(rpi_kernel_rows m, int64_t row, int64_t col) {
    int64_t i = row * m.stride + col;
    return m.dtype == RP_BF16 ? rpi_bf16_to_f32(((const uint16_t *)m.data)[i])
                              : ((const float *)m.data)[i];
}

static inline void rpi_kernel_put(rpi_kernel_rows m, int64_t row, int64_t col, double value) {
    int64_t i = row * m.stride + col;
    if (m.dtype == RP_BF16)
        ((uint16_t *)m.data)[i] = rpi_f32_to_bf16((float)value);
    else
        ((float *)m.data)[i] = (float)value;
}

#endif
