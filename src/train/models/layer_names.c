#include "train/models/layer_names.h"

#include "base/memory.h"
#include "base/status.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* "3", "encoder_layer_3" */
static bool is_numbered(const char *word, size_t length) {
    size_t digits = 0;
    while (digits < length && isdigit((unsigned char)word[length - 1 - digits])) digits++;
    return digits && (digits == length || word[length - 1 - digits] == '_');
}

void rpi_layer_of(const char *node, char layer[RPI_LAYER_NAME]) {
    const char *end = strrchr(node, '.'), *dot = NULL;
    for (const char *word = node; word; word = dot ? dot + 1 : NULL) {
        dot = strchr(word, '.');
        if (!is_numbered(word, dot ? (size_t)(dot - word) : strlen(word))) continue;
        end = dot;
        break;
    }
    size_t length = end ? (size_t)(end - node) : strlen(node);
    snprintf(layer, RPI_LAYER_NAME, "%.*s", (int)length, node);
}

/* Does its last word have a number? */
static bool is_block(const char *layer) {
    const char *dot = strrchr(layer, '.'), *word = dot ? dot + 1 : layer;
    return is_numbered(word, strlen(word));
}

/* How many nodes from `first` on are of one layer. */
static int length_of(const rpi_graph *graph, int first, char layer[RPI_LAYER_NAME]) {
    int end = first + 1;
    rpi_layer_of(rpi_graph_node(graph, first)->name, layer);
    for (; end < rpi_graph_node_count(graph); end++) {
        char next[RPI_LAYER_NAME];
        rpi_layer_of(rpi_graph_node(graph, end)->name, next);
        if (strcmp(next, layer) != 0) break;
    }
    return end - first;
}

rp_status rpi_blocks_of(const rpi_graph *graph, rpi_segment **out_blocks, int *out_count) {
    rpi_segment *blocks = NULL;
    int nodes = rpi_graph_node_count(graph), count = 0;
    RP_TRY(rpi_alloc_array((size_t)nodes, sizeof *blocks, "blocks of a model", &blocks));
    for (int first = 0, length; first < nodes; first += length) {
        char layer[RPI_LAYER_NAME];
        length = length_of(graph, first, layer);
        if (length < 2 || !is_block(layer)) continue;
        blocks[count++] = (rpi_segment){rpi_graph_node(graph, first)->name,
                                        rpi_graph_node(graph, first + length - 1)->name};
    }
    if (!count) {
        rpi_free(blocks);
        return RP_FAIL(INVALID,
                       "--recompute: this model has no blocks whose activations could be "
                       "made again");
    }
    *out_blocks = blocks;
    *out_count = count;
    return RP_OK;
}
