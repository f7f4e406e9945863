#include "kernel_fixture.h"

#include "engine/backends/cpu/kernels/kernel_cut.h"

enum { SHAPES = 200, MOST = 9, SIDE = 150 };

/* Every element of the matrix is in one part, and parts but the last begin at whole grains. */
static void parts_cover(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    for (int i = 0; i < SHAPES; i++) {
        const rpi_partition_rule rule = {.row_grain = 1 + rpi_rng_below(&rng, 24),
                                         .col_grain = 1 + rpi_rng_below(&rng, 48),
                                         .packing = rpi_rng_below(&rng, 100),
                                         .most_rows = 1 + rpi_rng_below(&rng, 200)};
        const int64_t rows = kernel_size(&rng, SIDE), cols = kernel_size(&rng, SIDE);
        const int threads = 1 + (int)rpi_rng_below(&rng, MOST);
        const rpi_kernel_cut cut = rpi_partition_of(&rule, rows, cols, threads);
        unsigned char seen[SIDE * SIDE] = {0};
        CHECK(cut.down * cut.across >= 1 && cut.down * cut.across <= threads);
        for (int64_t part = 0; part < cut.down * cut.across; part++) {
            const rpi_partition_part it = rpi_partition_part_of(&cut, part);
            CHECK(it.first % rule.row_grain == 0 && it.left % rule.col_grain == 0);
            CHECK(it.first < it.end && it.left < it.right);
            for (int64_t r = it.first; r < it.end; r++)
                for (int64_t c = it.left; c < it.right; c++) seen[r * cols + c]++;
        }
        for (int64_t at = 0; at < rows * cols; at++)
            CHECK_MSG(seen[at] == 1, "element %lld is in %d parts", (long long)at, seen[at]);
    }
}

/* Rows beyond what is packed at a time are cheaper to share out than columns: each packing of
 * them packs all columns anew. */
static void rows_go_first(void) {
    const rpi_partition_rule rule = {
        .row_grain = 8, .col_grain = 32, .packing = 48, .most_rows = 768};
    const rpi_kernel_cut tall = rpi_partition_of(&rule, 1024, 3072, 2),
                         flat = rpi_partition_of(&rule, 64, 3072, 2);
    CHECK(tall.down == 2 && tall.across == 1);
    CHECK(flat.down == 1 && flat.across == 2);
}

CASES({"parts_cover", parts_cover}, {"rows_go_first", rows_go_first})
