#include "train/models/tensor_split.h"

#include "base/status.h"

#include <stdio.h>

enum { LONGEST_LIST = 160 };

bool rpi_tensor_split_shape(rpi_graph *graph, const rpi_tensor_split *split,
                            const rpi_parameter *parameter, rpi_shape *out_shape) {
    *out_shape = parameter->shape;
    if (!rpi_tensor_is_split(split)) return true;
    rpi_shard_record record = rpi_parameter_record(parameter);
    rp_status status = rpi_shard_check(&record, split->ranks);
    if (status != RP_OK) {
        rpi_graph_fail(graph, status, "%s", rp_last_error()->message);
        return false;
    }
    if (record.shard.kind == RPI_SHARD_CUT && !parameter->adds &&
        rpi_tensor_split_copies(split, parameter)) {
        rpi_graph_fail(graph, RP_INVALID,
                       "%s has too few parts for %d tensor ranks, which would count some twice",
                       parameter->name, split->ranks);
        return false;
    }
    int64_t shape[RPI_SHARD_DIMS];
    rpi_shard_shape(&record, split->ranks, split->rank, shape);
    for (int d = 0; d < record.dims; d++) out_shape->size[d] = shape[d];
    return rpi_shard_count(&record, split->ranks, split->rank) > 0;
}

bool rpi_tensor_split_copies(const rpi_tensor_split *split, const rpi_parameter *parameter) {
    const rpi_grid grid = {{split->ranks, 1, 1, 1}};
    rpi_shard_record record = rpi_parameter_record(parameter);
    rpi_shard_cursor cursor;
    if (!rpi_tensor_is_split(split)) return false;
    if (rpi_shard_begin(&record, &grid, split->rank, RPI_REPLICAS_COPY, &cursor) != RP_OK)
        return false;
    for (rpi_shard_run run; rpi_shard_next(&cursor, &run);)
        if (run.holders > 1) return true;
    return false;
}

void rpi_tensor_split_range(const rpi_tensor_split *split, int64_t length, int64_t *out_first,
                            int64_t *out_end) {
    *out_first = 0;
    *out_end = length;
    if (rpi_tensor_is_split(split))
        rpi_shard_slice(length, split->ranks, split->rank, out_first, out_end);
}

/* ---- nodes ---- */

static rp_status unconnected(void *context, const rpi_external_io *io) {
    (void)context, (void)io;
    return RP_FAIL(STATE, "this model's tensor ranks have no communicator: it can be counted, "
                          "not run");
}

static rpi_external_attributes without_functions(rpi_tensor_node node) {
    rpi_external_attributes attributes = {0};
    if (node != RPI_TENSOR_SPLIT) attributes.forward_finish = unconnected;
    if (node != RPI_TENSOR_JOIN) attributes.backward_finish = unconnected;
    return attributes;
}

/* ranks x the shape of x. */
static rpi_shape gathered(const rpi_graph *graph, int ranks, rpi_value_id x) {
    const rpi_shape *of = &rpi_graph_value(graph, x)->shape;
    rpi_shape shape = {.dims = of->dims + 1, .size = {ranks}};
    for (int d = 0; d < of->dims; d++) shape.size[d + 1] = of->size[d];
    return shape;
}

/* batch x tokens x width of another number of tokens. */
static rpi_shape with_tokens(const rpi_graph *graph, int64_t tokens, rpi_value_id x) {
    rpi_shape shape = rpi_graph_value(graph, x)->shape;
    shape.size[1] = tokens;
    return shape;
}

static rpi_shape shape_behind(const rpi_graph *graph, const rpi_tensor_split *split,
                              rpi_tensor_node node, rpi_value_id x) {
    switch (node) {
    case RPI_TENSOR_GATHER: return gathered(graph, split->ranks, x);
    case RPI_TENSOR_SPLIT_TOKENS:
    case RPI_TENSOR_ALL_TOKENS: return with_tokens(graph, split->all_tokens, x);
    case RPI_TENSOR_JOIN_TOKENS:
    case RPI_TENSOR_OWN_TOKENS: return with_tokens(graph, split->part_tokens, x);
    default: return rpi_graph_value(graph, x)->shape;
    }
}

rpi_value_id rpi_tensor_split_node(rpi_graph *graph, const rpi_tensor_split *split,
                                   rpi_tensor_node node, const char *name, rpi_value_id x) {
    rpi_external_attributes attributes = without_functions(node);
    rp_status status = RP_OK;
    if (x == RPI_NO_VALUE || rpi_graph_check(graph) != RP_OK) return RPI_NO_VALUE;
    if (split->describe) status = split->describe(split->nodes, node, name, &attributes);
    if (status != RP_OK) {
        rpi_graph_fail(graph, status, "%s", rp_last_error()->message);
        return RPI_NO_VALUE;
    }
    attributes.repeats = split->repeats;
    attributes.always_repeats = node == RPI_TENSOR_SPLIT_TOKENS;
    attributes.output_count = 1;
    attributes.output_shapes[0] = shape_behind(graph, split, node, x);
    return rpi_external(graph, name, x, attributes);
}

/* ---- what would fit ---- */

/* "1, 2, 3, 4, 6, 12": the divisors. Returns text. */
static const char *list_divisors(int64_t count, char text[LONGEST_LIST]) {
    size_t used = 0;
    for (int64_t d = 1; d <= count; d++) {
        if (count % d) continue;
        int added = snprintf(text + used, LONGEST_LIST - used, "%s%lld", used ? ", " : "",
                             (long long)d);
        if (added < 0 || used + (size_t)added >= LONGEST_LIST) break;
        used += (size_t)added;
    }
    return text;
}

rp_status rpi_tensor_split_check(const rpi_tensor_split *split, const char *what,
                                 int64_t count) {
    char fits[LONGEST_LIST];
    if (!rpi_tensor_is_split(split) || count % split->ranks == 0) return RP_OK;
    return RP_FAIL(INVALID, "%s=%lld over %d tensor ranks: they divide over %s", what,
                   (long long)count, split->ranks, list_divisors(count, fits));
}

rp_status rpi_tensor_split_check_units(const rpi_tensor_split *split, const char *what,
                                       int64_t count) {
    if (!rpi_tensor_is_split(split) || count >= split->ranks) return RP_OK;
    return RP_FAIL(INVALID,
                   "%s=%lld over %d tensor ranks: each has one at least; up to %lld fit", what,
                   (long long)count, split->ranks, (long long)count);
}

rp_status rpi_tensor_split_check_shared(const rpi_tensor_split *split, const char *what,
                                        int64_t count) {
    char fits[LONGEST_LIST];
    if (!rpi_tensor_is_split(split) || count % split->ranks == 0 || split->ranks % count == 0)
        return RP_OK;
    return RP_FAIL(INVALID,
                   "%s=%lld over %d tensor ranks: they divide over %s, and multiples of %lld "
                   "share them",
                   what, (long long)count, split->ranks, list_divisors(count, fits),
                   (long long)count);
}
