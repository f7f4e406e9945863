/* Layers of a model, by the names of its nodes. */
#ifndef RPI_TRAIN_LAYER_NAMES_H
#define RPI_TRAIN_LAYER_NAMES_H

#include "engine/program.h"

enum { RPI_LAYER_NAME = 64 };

/* The layer of a node, by its name: up to its first numbered word ("h.3" of "h.3.attn.c_attn"),
 * else without its last word if it has several. */
void rpi_layer_of(const char *node, char layer[RPI_LAYER_NAME]);

/* The blocks of a model: nodes that follow each other in a layer with a number, two or more of
 * them, as segments of rpi_program_options.recompute. *out_blocks is the caller's to free with
 * rpi_free(); names are the graph's. RP_INVALID: there are none; RP_NOMEM. */
rp_status rpi_blocks_of(const rpi_graph *graph, rpi_segment **out_blocks, int *out_count);

#endif
