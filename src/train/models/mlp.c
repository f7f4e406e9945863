/* Linear layers with ReLU in between: 784-256-10 unless told otherwise. */
#include "base/status.h"
#include "engine/layers.h"
#include "train/models/model.h"

#include <stdio.h>
#include <stdlib.h>

extern const rpi_model rpi_model_mlp;

enum { MOST_LAYERS = 8, WIDEST = 65536 };

typedef struct mlp_options {
    const char *hidden;
} mlp_options;

typedef struct widths {
    int width[MOST_LAYERS];
    int count;
} widths;

static rp_status parse_widths(const char *text, widths *out) {
    *out = (widths){0};
    for (const char *at = text;; at++) {
        char *end = NULL;
        long width = strtol(at, &end, 10);
        if (out->count == MOST_LAYERS)
            return RP_FAIL(INVALID, "'%s' has more than %d hidden layers", text, MOST_LAYERS);
        if (end == at || width < 1 || width > WIDEST)
            return RP_FAIL(INVALID, "'%s' is no width; 1 to %d are allowed", at, WIDEST);
        out->width[out->count++] = (int)width;
        if (!*end) return RP_OK;
        if (*end != 'x') return RP_FAIL(INVALID, "'%s' is not like 512x256", text);
        at = end;
    }
}

static rp_status check_widths(const char *text) {
    widths hidden;
    return parse_widths(text, &hidden);
}

static const rpi_option options[] = {
    RPI_MODEL_OPTION("hidden", RPI_OPTION_TEXT, offsetof(mlp_options, hidden), "256", 0, 0,
                     "WIDTHS", "widths of the hidden layers, as 512x256", check_widths),
    {0},
};

static rpi_value_id build(rpi_builder *builder, const void *chosen, const rpi_data_shape *shape,
                          rpi_value_id images) {
    const mlp_options *o = chosen;
    widths hidden;
    rp_status status = parse_widths(o->hidden, &hidden);
    if (status != RP_OK) rpi_graph_fail(builder->graph, status, "%s", rp_last_error()->message);
    rpi_value_id x = rpi_flatten(builder->graph, "flatten", images);
    int in = shape->channels * shape->height * shape->width;
    char name[32];
    for (int i = 0; i < hidden.count; i++) {
        snprintf(name, sizeof name, "fc%d", i + 1);
        x = rpi_block_linear(builder, name, x, in, hidden.width[i]);
        snprintf(name, sizeof name, "relu%d", i + 1);
        x = rpi_relu(builder->graph, name, x);
        in = hidden.width[i];
    }
    snprintf(name, sizeof name, "fc%d", hidden.count + 1);
    return rpi_block_linear(builder, name, x, in, shape->classes);
}

const rpi_model rpi_model_mlp = {
    .name = "mlp",
    .summary = "linear layers with ReLU",
    .task = "classification",
    .options = options,
    .build = build,
};
