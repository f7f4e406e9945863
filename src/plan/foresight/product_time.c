#include "plan/foresight/product_time.h"

#include <math.h>

enum { MOST_PIECES = 16 }; /* of a product's depth */

double rpi_batched_product_s(const rpi_forecast_job *j, double m, double n, double k) {
    const double at[] = {m, n, k};
    if (j->products) return 2 * m * n * k / rpi_rate_at(j->products, at);
    double side = fmin(m, fmin(n, k));
    double slow = pow(rpi_forecast_fact(j, RPI_FACT_GEMM_HALF_SIDE) / side,
                      rpi_forecast_fact(j, RPI_FACT_GEMM_POWER));
    return 2 * m * n * k * (1 + slow) / (j->peak * rpi_forecast_fact(j, RPI_FACT_GEMM_SHARE));
}

/* The factor by which tiles of this shape, with the best number of pieces in depth, take longer
 * than if no processor were idle and no tile extended over the edge. */
static double tiles_longer(double m, double n, double k, double rows, double columns,
                           double at_once) {
    double tiles = ceil(m / rows) * ceil(n / columns), turns = INFINITY;
    double most = fmin(MOST_PIECES, fmax(1, k / fmax(m, n)));
    for (int pieces = 1; pieces <= most; pieces *= 2)
        turns = fmin(turns, ceil(tiles * pieces / at_once) / pieces);
    return turns * at_once * rows * columns / (m * n);
}

static double longer(const rpi_forecast_job *j, double m, double n, double k) {
    double at_once = rpi_forecast_fact(j, RPI_FACT_TILES_AT_ONCE);
    double rows = rpi_forecast_fact(j, RPI_FACT_TILE_ROWS);
    double columns = rpi_forecast_fact(j, RPI_FACT_TILE_COLUMNS);
    double half_share = rpi_forecast_fact(j, RPI_FACT_TILE_HALF_SHARE);
    if (j->products || at_once < 1 || rows < 1 || columns < 2) return 1;
    double least = fmin(tiles_longer(m, n, k, rows, columns, at_once),
                        tiles_longer(m, n, k, columns, rows, at_once));
    if (half_share <= 0) return least;
    return fmin(least, tiles_longer(m, n, k, rows, columns / 2, at_once) / half_share);
}

double rpi_product_s(const rpi_forecast_job *j, double m, double n, double k) {
    return longer(j, m, n, k) * rpi_batched_product_s(j, m, n, k);
}
