#include "train/models/context_split.h"

#include "base/status.h"
#include "engine/dimension.h"

rpi_token_pieces rpi_context_pieces(const rpi_context_split *split) {
    if (!rpi_context_is_split(split)) return (rpi_token_pieces){0};
    int64_t count = 2 * (int64_t)split->ranks;
    return (rpi_token_pieces){.count = count, .at = {split->rank, count - 1 - split->rank}};
}

/* ---- nodes ---- */

static rp_status unconnected(void *context, const rpi_external_io *io) {
    (void)context, (void)io;
    return RP_FAIL(STATE, "this model's context ranks have no communicator: it can be counted, "
                          "not run");
}

/* Of x the width given; and with the tokens of all ranks. */
static rpi_shape shape_of(rpi_graph *graph, rpi_value_id x, int64_t ranks, int64_t width) {
    rpi_shape shape = rpi_graph_value(graph, x)->shape;
    if (!rpi_dimension_multiply(shape.size[1], ranks, &shape.size[1]))
        rpi_graph_fail(graph, RP_INVALID, "sequences of %lld ranks are too long",
                       (long long)ranks);
    shape.size[2] = width;
    return shape;
}

static void name_outputs(rpi_graph *graph, int64_t ranks, const rpi_context_gather *gather,
                         rpi_value_id x, rpi_external_attributes *attributes) {
    int count = 0;
    if (gather->queries)
        attributes->output_shapes[count++] = shape_of(graph, x, 1, gather->queries);
    for (int i = 0; i < 2; i++)
        attributes->output_shapes[count++] = shape_of(graph, x, ranks, gather->keys);
    attributes->output_count = count;
}

rpi_value_id rpi_context_gather_node(rpi_graph *graph, const rpi_context_split *split,
                                     const char *name, const rpi_context_gather *gather,
                                     const rpi_value_id *inputs) {
    rpi_external_attributes attributes = {.forward_finish = unconnected,
                                          .backward_finish = unconnected};
    int count = gather->queries ? 1 : 2;
    rp_status status = RP_OK;
    for (int i = 0; i < count; i++)
        if (inputs[i] == RPI_NO_VALUE) return RPI_NO_VALUE;
    if (rpi_graph_check(graph) != RP_OK) return RPI_NO_VALUE;
    if (split->describe) status = split->describe(split->nodes, gather, &attributes);
    if (status != RP_OK) {
        rpi_graph_fail(graph, status, "%s", rp_last_error()->message);
        return RPI_NO_VALUE;
    }
    attributes.always_repeats = true;
    name_outputs(graph, split->ranks, gather, inputs[0], &attributes);
    return rpi_external_node(graph, name, count, inputs, attributes);
}
