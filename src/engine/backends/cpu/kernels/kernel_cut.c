#include "engine/backends/cpu/kernels/kernel_cut.h"

static int64_t grains(int64_t count, int64_t grain) {
    return (count + grain - 1) / grain;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

rpi_kernel_cut rpi_partition_of(const rpi_partition_rule *rule, int64_t rows, int64_t cols,
                                int threads) {
    const int64_t row_grains = grains(rows, rule->row_grain);
    const int64_t col_grains = grains(cols, rule->col_grain);
    rpi_kernel_cut best = {.rows = rows,
                           .cols = cols,
                           .down = 1,
                           .across = 1,
                           .row_grain = rule->row_grain,
                           .col_grain = rule->col_grain};
    int64_t least_cost = INT64_MAX;
    for (int64_t across = 1; across <= threads && across <= col_grains; across++) {
        const int64_t down = least(threads / across, row_grains);
        const int64_t high = grains(row_grains, down) * rule->row_grain;
        const int64_t wide = grains(col_grains, across) * rule->col_grain;
        const int64_t packed = high + wide * grains(high, rule->most_rows);
        const int64_t cost = high * wide + rule->packing * packed;
        if (cost >= least_cost) continue;
        least_cost = cost;
        best.down = down;
        best.across = across;
    }
    return best;
}

rpi_partition_part rpi_partition_part_of(const rpi_kernel_cut *cut, int64_t part) {
    const int64_t rows = grains(cut->rows, cut->row_grain);
    const int64_t cols = grains(cut->cols, cut->col_grain);
    const int64_t i = part / cut->across, j = part % cut->across;
    return (rpi_partition_part){
        .first = rows * i / cut->down * cut->row_grain,
        .end = least(rows * (i + 1) / cut->down * cut->row_grain, cut->rows),
        .left = cols * j / cut->across * cut->col_grain,
        .right = least(cols * (j + 1) / cut->across * cut->col_grain, cut->cols)};
}
