#include "train/models/context_split.h"

#include "base/status.h"
#include "engine/dimension.h"
#include "plan/context_lengths.h"

rpi_token_pieces rpi_context_pieces(const rpi_context_split *split, int64_t sequence) {
    if (!rpi_context_is_split(split)) return (rpi_token_pieces){0};
    int64_t count = 2 * (int64_t)split->ranks;
    rpi_token_pieces pieces = {.count = count, .at = {split->rank, count - 1 - split->rank}};
    if (sequence % count) pieces.whole = sequence;
    return pieces;
}

int64_t rpi_context_own(const rpi_context_split *split, int64_t sequence) {
    return rpi_context_length_own(split->ranks, sequence);
}

int64_t rpi_context_tokens(const rpi_context_split *split, int64_t sequence) {
    rpi_token_pieces pieces = rpi_context_pieces(split, sequence);
    int64_t own = rpi_context_own(split, sequence), tokens = 0;
    for (int i = 0; i < rpi_token_runs(&pieces); i++)
        tokens += rpi_token_run_at(&pieces, own, i).count;
    return tokens;
}

/* ---- nodes ---- */

static rp_status unconnected(void *context, const rpi_external_io *io) {
    (void)context, (void)io;
    return RP_FAIL(STATE, "this model's context ranks have no communicator: it can be counted, "
                          "not run");
}

/* x with another width; and the same with the tokens of all ranks. */
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
    for (int i = 0; i < rpi_context_parts(gather); i++)
        attributes->output_shapes[count++] = shape_of(graph, x, ranks, gather->keys);
    attributes->output_count = count;
}

rpi_value_id rpi_context_gather_node(rpi_graph *graph, const rpi_context_split *split,
                                     const char *name, const rpi_context_gather *gather,
                                     const rpi_value_id *inputs) {
    rpi_external_attributes attributes = {.forward_finish = unconnected,
                                          .backward_finish = unconnected};
    int count = rpi_context_inputs(gather);
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
