/* How long the layers of a model take on this machine: each is run alone, forward and backward,
 * for a micro-batch. Of layers that are alike only the first is run. No memory is kept. */
#ifndef RPI_TRAIN_LAYER_TIMES_H
#define RPI_TRAIN_LAYER_TIMES_H

#include "engine/backend.h"
#include "plan/pipelines/pipeline_cut.h"
#include "train/parallel/model_layers.h"

typedef struct rpi_layer_times_setup {
    const rpi_network *network;
    const rpi_model_layers *layers;
    const rpi_backend *backend;
    rpi_backend_options options;
    rp_dtype compute;
    bool recompute;
    bool together;   /* ranks communicate in the layers: each must run them equally often */
    int64_t samples; /* in a micro-batch */
    const void *const *inputs; /* the graph's inputs for these samples */
} rpi_layer_times_setup;

/* Each layer's times, the least of a few runs, and its bytes. out_layers: [layers->count];
 * names are the layers'. Takes the memory of one layer at a time. */
rp_status rpi_layer_times_measure(const rpi_layer_times_setup *setup,
                                  rpi_pipeline_layer *out_layers);
/* Is layer `b` made like layer `a`, of the same operations with the same sizes? */
bool rpi_layers_are_alike(const rpi_network *network, const rpi_model_layers *layers, int a,
                          int b);

#endif
