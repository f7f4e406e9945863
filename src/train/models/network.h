/* A model over data of a given shape: its graph, its task's loss, and its parameter record. */
#ifndef RPI_TRAIN_NETWORK_H
#define RPI_TRAIN_NETWORK_H

#include "engine/weights.h"
#include "train/models/model.h"
#include "train/tasks/task.h"

typedef struct rpi_network {
    char text[RPI_MODEL_TEXT]; /* as the user named the model */
    const rpi_task *task;
    rpi_data_shape shape; /* of the data that it was built for */
    rpi_graph *graph;
    rpi_parameter *parameters;
    int parameter_count;
    /* Inputs of the graph in this order: those of the task, and the scale of its loss, an f32
     * scalar. */
    rpi_value_id inputs[RPI_TASK_INPUTS], scale;
    rpi_value_id logits, loss, correct; /* results */
} rpi_network;

/* RP_INVALID: an unknown model or option; or data that this model cannot take. */
rp_status rpi_network_build(const char *model, const rpi_data_shape *shape,
                            rpi_network *out_network);
void rpi_network_close(rpi_network *network); /* zeros are fine */

/* The initial elements of all parameters and states: the same for any number of ranks. */
void rpi_network_initialise(const rpi_network *network, rpi_weights *weights, uint64_t seed);
/* The elements of record `index` in the arenas of parameters or states. */
float *rpi_network_elements(const rpi_network *network, rpi_weights *weights, int index);

#endif
