/* Matrix products of f32: c = or += a b.
 *
 * Both factors lie either way round and are packed as they are read. An element of c is a sum
 * over k: of RPI_SGEMM_DEPTH products at a time in order, one fused multiply-add each, and of
 * these sums in order. So the bits depend on k alone: not on the instruction set, the number of
 * threads, or what else is in c. */
#ifndef RPI_ENGINE_KERNEL_SGEMM_H
#define RPI_ENGINE_KERNEL_SGEMM_H

#include "engine/backends/cpu/kernels/kernel.h"
#include "engine/backends/cpu/kernels/kernel_cut.h"

#include <stdbool.h>
#include <stddef.h>

/* All is f32. c: m x n. a: m x k, or where it is transposed k x m rows; b: k x n, or n x k
 * rows. c is neither of them. */
typedef struct rpi_kernel_sgemm {
    int64_t m, n, k;
    rpi_kernel_rows a, b;
    bool a_transposed, b_transposed;
    rpi_kernel_rows c;
    bool accumulate;   /* onto c */
    const float *bias; /* [n], added to every row behind all else; NULL: none */
    void *workspace;   /* rpi_kernel_sgemm_workspace() bytes, aligned to RPI_ALIGNMENT */
} rpi_kernel_sgemm;

/* Has this processor a vector form? Elsewhere the definition runs, slowly. */
bool rpi_kernel_sgemm_is_fast(const rpi_kernel_run *run);
/* Enough for every product. */
size_t rpi_kernel_sgemm_workspace(const rpi_kernel_run *run);
void rpi_kernel_sgemm_run(const rpi_kernel_run *run, const rpi_kernel_sgemm *args);

/* ---- inside ---- */

RPI_KERNEL_DECLARE(sgemm);

enum {
    RPI_SGEMM_DEPTH = 256, /* of k in one sum */
    RPI_SGEMM_A = 208896,  /* elements of a that are packed at once, for an L2 of 1 MB, */
    RPI_SGEMM_COLS = 32,   /* and columns of b */
    RPI_SGEMM_PACKED = RPI_SGEMM_A + RPI_SGEMM_COLS * RPI_SGEMM_DEPTH
};

/* Is the L1 cache of 32 KB, of 8 ways, or smaller? Then lines that want the same places are few
 * at a time. It decides in which order factors are packed: the bits are the same. */
bool rpi_sgemm_l1_is_narrow(void);
/* Says it, instead of the processor: for tests. */
void rpi_sgemm_set_l1(bool narrow);

/* c is cut into parts, one for each thread. */
typedef struct rpi_sgemm_work {
    const rpi_kernel_sgemm *it;
    rpi_kernel_cut cut;
} rpi_sgemm_work;

typedef struct rpi_sgemm_part {
    rpi_partition_part area; /* of c */
    float *packed;           /* RPI_SGEMM_PACKED elements */
} rpi_sgemm_part;

static inline rpi_sgemm_part rpi_sgemm_part_of(const rpi_sgemm_work *work, int64_t part) {
    const rpi_kernel_sgemm *it = work->it;
    return (rpi_sgemm_part){
        .area = rpi_partition_part_of(&work->cut, part),
        .packed = it->workspace ? (float *)it->workspace + part * RPI_SGEMM_PACKED : NULL};
}

#endif
