/* The layers of a model, between which it can be cut into stages: a cut stands behind a block
 * from which exactly one activation goes on. What comes before the first block belongs to that
 * block. */
#ifndef RPI_TRAIN_MODEL_LAYERS_H
#define RPI_TRAIN_MODEL_LAYERS_H

#include "train/models/layer_names.h"
#include "train/models/network.h"

typedef struct rpi_model_layers {
    int count;
    int *first_node; /* [count + 1]; the last is the end of the graph */
    /* [count] the activation behind each; RPI_NO_VALUE: it is the last layer */
    rpi_value_id *crossing;
    char (*names)[RPI_LAYER_NAME]; /* [count] the block with which it begins: "h.3" */
} rpi_model_layers;

/* Pure: the same on all ranks. RP_INVALID: the model has no blocks. RP_NOMEM. */
rp_status rpi_model_layers_find(const rpi_network *network, rpi_model_layers *out_layers);
void rpi_model_layers_free(rpi_model_layers *layers); /* zeros are fine */

/* The block of a node, or the node itself if it is in no block. */
void rpi_model_layer_name(const rpi_graph *graph, int node, char name[RPI_LAYER_NAME]);

/* The costs of nodes, added up by layer; the caller frees them with rpi_free(). */
rp_status rpi_model_layers_costs(const rpi_model_layers *layers, const double *node_costs,
                                 double **out_costs);

#endif
