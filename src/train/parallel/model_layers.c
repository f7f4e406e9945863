#include "train/parallel/model_layers.h"

#include "base/memory.h"
#include "base/status.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* made[v]: the value depends on a parameter. Only such values cross a border. */
static void find_made(const rpi_graph *graph, bool *made) {
    for (int v = 0; v < rpi_graph_value_count(graph); v++)
        made[v] = rpi_graph_value(graph, v)->kind == RPI_VALUE_PARAMETER;
    for (int n = 0; n < rpi_graph_node_count(graph); n++) {
        const rpi_node *node = rpi_graph_node(graph, n);
        bool from = false;
        for (int i = 0; i < node->input_count; i++)
            from |= node->inputs[i] != RPI_NO_VALUE && made[node->inputs[i]];
        for (int i = 0; i < node->output_count; i++) made[node->outputs[i]] = from;
    }
}

/* The one activation that nodes from `end` on read of nodes [0, end). RPI_NO_VALUE: there is
 * none, or there are several. */
static rpi_value_id crossing_at(const rpi_graph *graph, const bool *made, int end) {
    rpi_value_id crossing = RPI_NO_VALUE;
    for (int n = end; n < rpi_graph_node_count(graph); n++) {
        const rpi_node *node = rpi_graph_node(graph, n);
        for (int i = 0; i < node->input_count; i++) {
            rpi_value_id id = node->inputs[i];
            if (id == RPI_NO_VALUE || !made[id]) continue;
            const rpi_value *value = rpi_graph_value(graph, id);
            if (value->kind != RPI_VALUE_ACTIVATION || value->producer >= end) continue;
            if (value->dtype != RP_F32 || (crossing != RPI_NO_VALUE && crossing != id))
                return RPI_NO_VALUE;
            crossing = id;
        }
    }
    return crossing;
}

/* The places where the model can be cut, in order. */
typedef struct cuts {
    int *ends;              /* the number of nodes before each place */
    rpi_value_id *crossing; /* the activation that goes on from there */
    int count;
} cuts;

static int node_named(const rpi_graph *graph, const char *name) {
    int node = 0;
    while (strcmp(rpi_graph_node(graph, node)->name, name) != 0) node++;
    return node;
}

static void note_cuts(const rpi_graph *graph, const bool *made, const rpi_segment *blocks,
                      int block_count, cuts *c) {
    for (int b = 0; b < block_count; b++) {
        int end = node_named(graph, blocks[b].last) + 1;
        rpi_value_id crossing = crossing_at(graph, made, end);
        if (crossing == RPI_NO_VALUE) continue;
        /* A part would have to hand on an activation that passes a whole stretch, without
         * making it. */
        int before = c->count ? c->ends[c->count - 1] : 0;
        if (rpi_graph_value(graph, crossing)->producer < before) continue;
        c->ends[c->count] = end;
        c->crossing[c->count++] = crossing;
    }
}

static rp_status find_cuts(const rpi_network *network, cuts *c) {
    const rpi_graph *graph = network->graph;
    rpi_segment *blocks = NULL;
    bool *made = NULL;
    int count = 0;
    rp_status status = rpi_blocks_of(graph, &blocks, &count);
    if (status == RP_INVALID)
        return RP_FAIL(INVALID,
                       "--pp: the model %s has no blocks between which it could be cut into "
                       "stages",
                       network->text);
    if (status == RP_OK)
        status =
            rpi_alloc_array((size_t)rpi_graph_value_count(graph), sizeof *made, "cuts", &made);
    if (status == RP_OK)
        status = rpi_alloc_array((size_t)count + 1, sizeof *c->ends, "cuts", &c->ends);
    if (status == RP_OK)
        status = rpi_alloc_array((size_t)count + 1, sizeof *c->crossing, "cuts", &c->crossing);
    if (status == RP_OK) {
        find_made(graph, made);
        note_cuts(graph, made, blocks, count, c);
    }
    rpi_free(made);
    rpi_free(blocks);
    return status;
}

static void close_cuts(cuts *c) {
    rpi_free(c->ends);
    rpi_free(c->crossing);
}

void rpi_model_layer_name(const rpi_graph *graph, int node, char name[RPI_LAYER_NAME]) {
    const char *own = rpi_graph_node(graph, node)->name;
    rpi_layer_of(own, name);
    size_t length = strlen(name);
    if (!length || !isdigit((unsigned char)name[length - 1]))
        snprintf(name, RPI_LAYER_NAME, "%s", own);
}

static rp_status take(const rpi_network *network, const cuts *c, rpi_model_layers *layers) {
    size_t count = (size_t)c->count + 1;
    layers->count = (int)count;
    RP_TRY(rpi_alloc_array(count + 1, sizeof(int), "layers", &layers->first_node));
    RP_TRY(rpi_alloc_array(count, sizeof(rpi_value_id), "layers", &layers->crossing));
    RP_TRY(rpi_alloc_array(count, sizeof *layers->names, "layers", &layers->names));
    for (int i = 0; i < layers->count; i++) {
        bool is_last = i == c->count;
        layers->first_node[i] = i ? c->ends[i - 1] : 0;
        layers->crossing[i] = is_last ? RPI_NO_VALUE : c->crossing[i];
        rpi_model_layer_name(network->graph, layers->first_node[i], layers->names[i]);
    }
    layers->first_node[count] = rpi_graph_node_count(network->graph);
    return RP_OK;
}

rp_status rpi_model_layers_find(const rpi_network *network, rpi_model_layers *out_layers) {
    cuts c = {0};
    rpi_model_layers layers = {0};
    rp_status status = find_cuts(network, &c);
    if (status == RP_OK) status = take(network, &c, &layers);
    close_cuts(&c);
    if (status == RP_OK)
        *out_layers = layers;
    else
        rpi_model_layers_free(&layers);
    return status;
}

void rpi_model_layers_free(rpi_model_layers *layers) {
    rpi_free(layers->first_node);
    rpi_free(layers->crossing);
    rpi_free(layers->names);
    *layers = (rpi_model_layers){0};
}

rp_status rpi_model_layers_costs(const rpi_model_layers *layers, const double *node_costs,
                                 double **out_costs) {
    double *costs = NULL;
    RP_TRY(rpi_alloc_array((size_t)layers->count, sizeof *costs, "layers", &costs));
    for (int i = 0; i < layers->count; i++) {
        costs[i] = 0;
        for (int n = layers->first_node[i]; n < layers->first_node[i + 1]; n++)
            costs[i] += node_costs[n];
    }
    *out_costs = costs;
    return RP_OK;
}
