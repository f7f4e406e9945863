/* Any graph, or any rounds of graphs, from a file: graph_text.h has the format. */
#include "base/memory.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "plan/topologies/graph_text.h"
#include "plan/topologies/topology_properties.h"

enum { FILE_BYTES = 64 * 1024 * 1024 };

static const rpi_option options[] = {
    RPI_TOPOLOGY_ROW("path", TEXT, path, NULL, 0, 0, "FILE", "edges or a matrix"),
    {0},
};

static rp_status check(const rpi_topology *topology) {
    if (topology->options.path && *topology->options.path) return RP_OK;
    return RP_FAIL(INVALID, "which file? write file:PATH");
}

static int64_t period(const rpi_topology *topology) {
    return ((const rpi_graph_text *)topology->state)->rounds;
}

static void mix(const rpi_topology *topology, int64_t step, rpi_mixing *mixing) {
    const rpi_graph_text *graph = topology->state;
    for (size_t i = graph->first[step]; i < graph->first[step + 1]; i++)
        rpi_mixing_weigh_vector(mixing, graph->links[i]);
}

/* Weights that keep neither agreement nor the sum average nothing. */
static rp_status check_sums(const rpi_topology *topology) {
    rpi_mixing mixing = {0};
    rp_status status = RP_OK;
    bool all_rows = true, all_columns = true;
    for (int64_t step = 0; step < topology->period && status == RP_OK; step++) {
        bool rows = false, columns = false;
        status = rpi_topology_mix(topology, step, &mixing);
        if (status == RP_OK) status = rpi_mixing_sums(&mixing, &rows, &columns);
        all_rows = all_rows && rows;
        all_columns = all_columns && columns;
        if (status == RP_OK && !all_rows && !all_columns)
            status = RP_FAIL(INVALID,
                             "round %lld: the weights of a rank for all vectors must sum to 1 "
                             "(rows), or those of all ranks for its vector (columns); write "
                             "thirds as 1/3, not as 0.333",
                             (long long)step);
    }
    rpi_mixing_free(&mixing);
    return status;
}

static rp_status check_connected(const rpi_topology *topology) {
    bool connected = false;
    int from = 0, to = 0;
    RP_TRY(rpi_topology_connects(topology, topology->period, &connected, &from, &to));
    if (connected) return RP_OK;
    return RP_FAIL(INVALID,
                   "the graph is not connected: nothing of rank %d ever reaches rank %d", from,
                   to);
}

static void close(rpi_topology *topology) {
    if (topology->state) rpi_graph_text_free(topology->state);
    rpi_free(topology->state);
}

static rp_status open(rpi_topology *topology) {
    char *text = NULL;
    size_t bytes = 0;
    rpi_graph_text *graph = NULL;
    RP_TRY(rpi_alloc(sizeof *graph, "a graph", &graph));
    topology->state = graph;
    RP_TRY(rpi_regular_file_read(topology->options.path, FILE_BYTES, &text, &bytes));
    rp_status status = rpi_graph_text_read(text, topology->ranks, graph);
    rpi_free(text);
    RP_TRY(status);
    topology->weights = graph->weights;
    topology->period = graph->rounds;
    RP_TRY(check_sums(topology));
    return check_connected(topology);
}

const rpi_topology_kind rpi_topology_file = {
    .name = "file",
    .summary = "file:PATH: edges or a matrix, one round or several (docs/topologies.md)",
    .options = options,
    .rest = "path",
    .is_rest = true,
    .check = check,
    .open = open,
    .close = close,
    .period = period,
    .mix = mix,
};
