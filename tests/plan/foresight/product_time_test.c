/* Products by tiles: what is left for the last time, and what stands out over the edge. */
#include "plan/foresight/product_time.h"

#include "plan/foresight/trainings.h"

static rpi_machine tiled(double rows, double columns, double at_once, double half_share) {
    rpi_machine m = perfect_machine(8);
    m.device.facts[RPI_FACT_TILE_ROWS].value = rows;
    m.device.facts[RPI_FACT_TILE_COLUMNS].value = columns;
    m.device.facts[RPI_FACT_TILES_AT_ONCE].value = at_once;
    m.device.facts[RPI_FACT_TILE_HALF_SHARE].value = half_share;
    return m;
}

/* By what factor m n k takes longer than its operations at the best rate. */
static double longer(const rpi_machine *machine, double m, double n, double k) {
    rpi_forecast_job j = {.m = machine, .peak = 1e14};
    return rpi_product_s(&j, m, n, k) / (2 * m * n * k / 1e14);
}

/* By hand, 128 x 256 and 108 at once as on an A100; a stranger adds a row. */
static void tiles_are_made_so_many_at_once(void) {
    static const struct {
        double half_share, m, n, k, longer;
    } rows[] = {
        {0, 6144, 6912, 2304, 1},             /* 1296 tiles: 12 times 108 */
        {0, 6144, 2304, 2304, 1},             /* 432: 4 times */
        {0, 3072, 4096, 4096, 432. / 384},    /* 384: 4 times, the last not full */
        {0, 128, 256, 256, 108},              /* one tile of 108 */
        {0, 256, 128, 256, 108},              /* turned, as well */
        {0, 129, 128, 256, 108. * 256 / 129}, /* one, turned, and not two */
        {0, 768, 768, 1024, 6},               /* 18 tiles */
        {0, 768, 768, 65536, 3. / 16 * 6},    /* in 16 pieces of the depth: 288, 3 times */
        {0, 768, 768, 1536, 3},               /* in 2 pieces: 36 */
        {.9, 3072, 4096, 4096, 432. / 384},   /* 768 by half: 8 times, no quicker */
        {.9, 768, 3072, 1024, 1.5},           /* 72 of 108 */
        {.5, 768, 768, 1024, 6},              /* 36 by half: 3 / .5 */
        {.9, 768, 768, 1024, 3 / .9},         /* the half at .9 */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rpi_machine m = tiled(128, 256, 108, rows[i].half_share);
        double got = longer(&m, rows[i].m, rows[i].n, rows[i].k);
        CHECK_NEAR(got, rows[i].longer, 1e-9);
    }
}

static void a_device_without_tiles_has_no_last_one(void) {
    rpi_machine m = tiled(128, 256, 0, .9);
    CHECK_NEAR(longer(&m, 129, 257, 100), 1, 1e-12);
    m = tiled(0, 256, 108, .9);
    CHECK_NEAR(longer(&m, 129, 257, 100), 1, 1e-12);
    m = tiled(128, 0, 108, .9);
    CHECK_NEAR(longer(&m, 129, 257, 100), 1, 1e-12);
}

/* What is slow for being small is slower for being made by tiles; many at once wait for none.
 */
static void the_smallest_side_counts_besides(void) {
    rpi_machine m = tiled(128, 256, 108, 0);
    m.device.facts[RPI_FACT_GEMM_HALF_SIDE].value = 768;
    m.device.facts[RPI_FACT_GEMM_POWER].value = 1;
    CHECK_NEAR(longer(&m, 768, 768, 1024), 12, 1e-12);
    rpi_forecast_job j = {.m = &m, .peak = 1e14};
    CHECK_NEAR(rpi_batched_product_s(&j, 768, 768, 1024) / (2 * 768. * 768 * 1024 / 1e14), 2,
               1e-12);
}

CASES({"tiles are made so many at once", tiles_are_made_so_many_at_once},
      {"a device without tiles has no last one", a_device_without_tiles_has_no_last_one},
      {"the smallest side counts besides", the_smallest_side_counts_besides})
