/* A model over data of a given shape: its graph, its loss, and its parameter record. */
#ifndef RPI_TRAIN_NETWORK_H
#define RPI_TRAIN_NETWORK_H

#include "engine/weights.h"
#include "train/models/model.h"

typedef struct rpi_network {
    char text[RPI_MODEL_TEXT]; /* as the user named the model */
    rpi_graph *graph;
    rpi_parameter *parameters;
    int parameter_count;
    /* Graph inputs in this order: images (f32), labels (i32), scale (f32 scalar). */
    rpi_value_id images, labels, scale;
    rpi_value_id logits, loss, correct; /* results */
} rpi_network;

/* RP_INVALID: an unknown model or option; or images that this model cannot take. */
rp_status rpi_network_build(const char *model, const rpi_model_shape *shape,
                            rpi_network *out_network);
void rpi_network_close(rpi_network *network); /* zeros are fine */

/* The initial elements of all parameters and states: the same for any number of ranks. */
void rpi_network_initialise(const rpi_network *network, rpi_weights *weights, uint64_t seed);
/* The elements of record `index` in the arenas of parameters or states. */
float *rpi_network_elements(const rpi_network *network, rpi_weights *weights, int index);

#endif
