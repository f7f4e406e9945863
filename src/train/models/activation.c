#include "train/models/activation.h"

#include "base/status.h"

#include <string.h>

static rpi_value_id add_gelu(rpi_graph *graph, const char *name, rpi_value_id x) {
    return rpi_gelu(graph, name, x, RPI_GELU_ERF);
}

static rpi_value_id add_gelu_tanh(rpi_graph *graph, const char *name, rpi_value_id x) {
    return rpi_gelu(graph, name, x, RPI_GELU_TANH);
}

static const struct activation {
    const char *name;
    rpi_value_id (*add)(rpi_graph *graph, const char *name, rpi_value_id x);
} activations[] = {
    {"gelu", add_gelu}, {"gelu-tanh", add_gelu_tanh}, {"relu", rpi_relu}, {"silu", rpi_silu}};

static const struct activation *find(const char *name) {
    for (size_t i = 0; i < sizeof activations / sizeof activations[0]; i++)
        if (strcmp(name, activations[i].name) == 0) return &activations[i];
    return NULL;
}

rp_status rpi_activation_check(const char *name) {
    if (find(name)) return RP_OK;
    return RP_FAIL(INVALID, "'%s' is no activation; gelu, gelu-tanh, relu or silu", name);
}

rpi_value_id rpi_block_activation(rpi_builder *builder, const char *name, rpi_value_id x,
                                  const char *activation) {
    return find(activation)->add(builder->graph, name, x);
}
