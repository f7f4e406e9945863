#include "base/status.h"
#include "engine/layers.h"
#include "engine/op.h"

extern const rpi_op rpi_op_embedding;

static rp_status infer(const void *attributes, int input_count, const rpi_shape *inputs,
                       rpi_shape *outputs) {
    (void)input_count;
    const rpi_embedding_attributes *part = attributes;
    char text[96];
    int dims = inputs[0].dims;
    if (inputs[1].dims != 2)
        return RP_FAIL(INVALID, "table is %s; tokens x width is wanted",
                       rpi_op_shape_text(&inputs[1], text, sizeof text));
    int64_t rows = inputs[1].size[0];
    if (part->first < 0 || (part->whole ? part->first + rows > part->whole : part->first > 0))
        return RP_FAIL(INVALID, "rows %lld to %lld of a table of %lld", (long long)part->first,
                       (long long)(part->first + rows) - 1,
                       (long long)(part->whole ? part->whole : rows));
    if (dims == RPI_MAX_DIMS)
        return RP_FAIL(INVALID, "tokens are %s; at most %d axes are allowed",
                       rpi_op_shape_text(&inputs[0], text, sizeof text), RPI_MAX_DIMS - 1);
    outputs[0] = inputs[0];
    outputs[0].size[dims] = inputs[1].size[1];
    outputs[0].dims = dims + 1;
    return RP_OK;
}

static const rpi_embedding_attributes whole, middle = {.first = 3, .whole = 11};

static const rpi_op_example examples[] = {
    {.name = "sequences",
     .attributes = &whole,
     .input_count = 2,
     .inputs = {{2, {2, 5}}, {2, {7, 6}}},
     .classes = 7},
    {.name = "wide",
     .attributes = &whole,
     .input_count = 2,
     .inputs = {{2, {3, 4}}, {2, {9, 40}}},
     .classes = 9},
    {.name = "often the same",
     .attributes = &whole,
     .input_count = 2,
     .inputs = {{1, {60}}, {2, {3, 17}}},
     .classes = 2},
    {.name = "large table",
     .attributes = &whole,
     .input_count = 2,
     .inputs = {{1, {9}}, {2, {700, 5}}},
     .classes = 700},
    {.name = "a part of a table",
     .attributes = &middle,
     .input_count = 2,
     .inputs = {{2, {4, 8}}, {2, {5, 21}}},
     .classes = 11},
};

const rpi_op rpi_op_embedding = {
    .name = "embedding",
    .summary = "y[...] = table[tokens[...]]",
    .attribute_bytes = sizeof(rpi_embedding_attributes),
    .input_count = 2,
    .output_count = 1,
    .inputs = {{.name = "tokens", .dtype = RP_I32},
               {.name = "table", .role = RPI_WEIGHT, .dtype = RP_F32, .has_gradient = true}},
    .outputs = {{"output", RP_F32}},
    .infer = infer,
    .needs_inputs = 1,
    .gradient_from = RPI_GRADIENT_WRITTEN,
    .examples = examples,
    .example_count = sizeof examples / sizeof examples[0],
};

rpi_value_id rpi_embedding_of(rpi_graph *graph, const char *name, rpi_value_id tokens,
                              rpi_value_id table, rpi_embedding_attributes attributes) {
    return rpi_graph_add(graph, name, &rpi_op_embedding, &attributes, 2,
                         (rpi_value_id[]){tokens, table});
}

rpi_value_id rpi_embedding(rpi_graph *graph, const char *name, rpi_value_id tokens,
                           rpi_value_id table) {
    return rpi_embedding_of(graph, name, tokens, table, (rpi_embedding_attributes){0});
}
