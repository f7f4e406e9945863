/* Rows and columns: rank = row * columns + column. A mesh ends at its borders, a torus goes on
 * at the other side. A prime number of ranks makes one row: a path, or a ring. */
#include "base/status.h"
#include "plan/topologies/topology.h"

#include <stdio.h>

static const rpi_option options[] = {
    RPI_TOPOLOGY_ROW("shape", TEXT, shape, NULL, 0, 0, "ROWSxCOLUMNS",
                     "the most even one when absent"),
    RPI_TOPOLOGY_WEIGHTS,
    {0},
};

typedef struct grid {
    int rows, columns;
} grid;

/* The largest divisor that is no larger than the root. */
static int even_rows(int ranks) {
    int rows = 1;
    for (int d = 1; d * d <= ranks; d++)
        if (ranks % d == 0) rows = d;
    return rows;
}

static bool read_shape(const char *shape, grid *out_grid) {
    char behind;
    return sscanf(shape, "%4dx%4d%c", &out_grid->rows, &out_grid->columns, &behind) == 2 &&
           out_grid->rows > 0 && out_grid->columns > 0;
}

static grid shape_of(const rpi_topology *topology) {
    grid it = {.rows = even_rows(topology->ranks)};
    it.columns = topology->ranks / it.rows;
    if (topology->options.shape) (void)read_shape(topology->options.shape, &it);
    return it;
}

static rp_status check(const rpi_topology *topology) {
    const char *shape = topology->options.shape;
    grid it = {0};
    if (!shape) return RP_OK;
    if (!read_shape(shape, &it)) return RP_FAIL(INVALID, "shape is '%s'; write 4x6", shape);
    if (it.rows * it.columns == topology->ranks) return RP_OK;
    int rows = even_rows(topology->ranks);
    return RP_FAIL(INVALID, "shape %s has %d ranks, not %d; %dx%d would do", shape,
                   it.rows * it.columns, topology->ranks, rows, topology->ranks / rows);
}

static void link_both(rpi_mixing *mixing, int a, int b) {
    rpi_mixing_link(mixing, a, b);
    rpi_mixing_link(mixing, b, a);
}

static void mix_mesh(const rpi_topology *topology, int64_t step, rpi_mixing *mixing) {
    (void)step;
    grid it = shape_of(topology);
    for (int rank = 0; rank < topology->ranks; rank++) {
        if (rank % it.columns + 1 < it.columns) link_both(mixing, rank, rank + 1);
        if (rank / it.columns + 1 < it.rows) link_both(mixing, rank, rank + it.columns);
    }
}

static void mix_torus(const rpi_topology *topology, int64_t step, rpi_mixing *mixing) {
    (void)step;
    grid it = shape_of(topology);
    for (int row = 0; row < it.rows; row++)
        for (int column = 0; column < it.columns; column++) {
            int rank = row * it.columns + column;
            link_both(mixing, rank, row * it.columns + (column + 1) % it.columns);
            link_both(mixing, rank, (row + 1) % it.rows * it.columns + column);
        }
}

const rpi_topology_kind rpi_topology_mesh = {
    .name = "mesh",
    .summary = "rows and columns, neighbours above, below and beside; shape=ROWSxCOLUMNS",
    .options = options,
    .weights = RPI_WEIGHTS_METROPOLIS,
    .check = check,
    .mix = mix_mesh,
};

const rpi_topology_kind rpi_topology_torus = {
    .name = "torus",
    .summary = "a mesh whose rows and columns are rings",
    .options = options,
    .weights = RPI_WEIGHTS_METROPOLIS,
    .check = check,
    .mix = mix_torus,
};
