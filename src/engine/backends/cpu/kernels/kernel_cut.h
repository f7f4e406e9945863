/* How the result of a matrix product is cut over threads: into down x across parts of whole
 * grains, row by row of them. */
#ifndef RPI_ENGINE_KERNEL_CUT_H
#define RPI_ENGINE_KERNEL_CUT_H

#include <stdint.h>

typedef struct rpi_partition_rule {
    int64_t row_grain, col_grain;
    int64_t packing;   /* what takes as long as to pack an element: so many products */
    int64_t most_rows; /* of a that are packed at a time; b is packed once for each of these */
} rpi_partition_rule;

typedef struct rpi_kernel_cut {
    int64_t rows, cols, down, across;
    int64_t row_grain, col_grain;
} rpi_kernel_cut;

/* Each part packs its rows of a and its columns of b; the largest decides how long all wait. */
rpi_kernel_cut rpi_partition_of(const rpi_partition_rule *rule, int64_t rows, int64_t cols,
                                int threads);

/* Rows [first, end) and columns [left, right). */
typedef struct rpi_partition_part {
    int64_t first, end, left, right;
} rpi_partition_part;

rpi_partition_part rpi_partition_part_of(const rpi_kernel_cut *cut, int64_t part);

#endif
