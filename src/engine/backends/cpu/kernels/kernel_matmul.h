/* Matrix products of bf16 on processors with AMX: c = or += a b, summed in f32.
 *
 * Both factors are f32 or bf16 and lie either way round; f32 is rounded to bf16 (to nearest,
 * ties to even) as it is packed, so that neither a rounded nor a packed copy of a weight is
 * kept. AMX takes numbers below 2^-126 for zero. Each element of c is one sum over k, in an
 * order that depends on the sizes alone: not on the number of threads. */
#ifndef RPI_ENGINE_KERNEL_MATMUL_H
#define RPI_ENGINE_KERNEL_MATMUL_H

#include "engine/backends/cpu/kernels/kernel.h"

#include <stddef.h>

/* c: m x n. a: m x k, or where it is transposed k x m rows; b: k x n, or n x k rows. */
typedef struct rpi_kernel_matmul {
    int64_t m, n, k;
    rpi_kernel_rows a, b;
    bool a_transposed, b_transposed;
    rpi_kernel_rows c; /* f32 */
    bool accumulate;   /* onto c */
    void *workspace;   /* rpi_kernel_matmul_workspace(run) bytes, aligned to RPI_ALIGNMENT */
} rpi_kernel_matmul;

/* Has the processor AMX for bf16, does the system let this process use it, and does REDPOLL_ISA
 * allow AVX-512? Elsewhere the definition runs, slowly. */
bool rpi_kernel_matmul_is_fast(void);
size_t rpi_kernel_matmul_workspace(const rpi_kernel_run *run);
void rpi_kernel_matmul_run(const rpi_kernel_run *run, const rpi_kernel_matmul *args);

/* ---- inside ---- */

enum {
    RPI_MATMUL_GRAIN = 32,  /* rows or columns of c of which threads get whole ones */
    RPI_MATMUL_ROWS = 512,  /* of a that are packed at once, */
    RPI_MATMUL_COLS = 256,  /* and of b; */
    RPI_MATMUL_DEPTH = 768, /* so much of k at a time: half of a large L2 */
    RPI_MATMUL_PACKED = (RPI_MATMUL_ROWS + RPI_MATMUL_COLS) * RPI_MATMUL_DEPTH
};

/* Rows [first, end) and columns [left, right) of c; `packed` has RPI_MATMUL_PACKED elements. */
typedef struct rpi_matmul_part {
    int64_t first, end, left, right;
    uint16_t *packed;
} rpi_matmul_part;

void rpi_matmul_part_amx(const rpi_kernel_matmul *it, const rpi_matmul_part *part);

#endif
