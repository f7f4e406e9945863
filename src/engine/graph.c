#include "engine/graph.h"

#include "base/memory.h"
#include "base/status.h"
#include "engine/op.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct rpi_graph {
    rpi_arena *memory; /* names and attributes */
    rpi_value *values;
    rpi_node *nodes;
    int value_count, value_room;
    int node_count, node_room;
    const char *dimensions[RPI_DIMENSIONS];
    int dimension_count;
    rp_status status; /* the first failure of an addition */
    char message[RPI_ERROR_BYTES];
};

enum { FIRST_ROOM = 64, BLOCK_BYTES = 16384 };

static const char *const kind_names[] = {"input", "parameter", "state", "activation"};

rp_status rpi_graph_create(rpi_graph **out_graph) {
    rpi_graph *graph = NULL;
    RP_TRY(rpi_alloc(sizeof *graph, "a graph", &graph));
    rp_status status = rpi_arena_create(BLOCK_BYTES, &graph->memory);
    if (status != RP_OK) {
        rpi_free(graph);
        return status;
    }
    *out_graph = graph;
    return RP_OK;
}

void rpi_graph_destroy(rpi_graph *graph) {
    if (!graph) return;
    rpi_arena_destroy(graph->memory);
    rpi_free(graph->values);
    rpi_free(graph->nodes);
    rpi_free(graph);
}

rp_status rpi_graph_check(const rpi_graph *graph) {
    if (graph->status == RP_OK) return RP_OK;
    return rpi_fail(graph->status, __FILE__, __LINE__, "%s", graph->message);
}

/* Keeps the failure that this thread has just recorded, unless there was one before. */
static rpi_value_id keep_failure(rpi_graph *graph, rp_status status) {
    if (graph->status == RP_OK) {
        graph->status = status;
        snprintf(graph->message, sizeof graph->message, "%s", rp_last_error()->message);
    }
    return RPI_NO_VALUE;
}

void rpi_graph_fail(rpi_graph *graph, rp_status status, const char *format, ...) {
    if (graph->status != RP_OK) return;
    graph->status = status;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(graph->message, sizeof graph->message, format, arguments);
    va_end(arguments);
}

static rp_status copy_bytes(rpi_graph *graph, const void *bytes, size_t count,
                            const void **out_copy) {
    void *copy = NULL;
    RP_TRY(rpi_arena_alloc(graph->memory, count, &copy));
    memcpy(copy, bytes, count);
    *out_copy = copy;
    return RP_OK;
}

static rp_status copy_name(rpi_graph *graph, const char *name, const char **out_name) {
    const void *copy = NULL;
    RP_TRY(copy_bytes(graph, name, strlen(name) + 1, &copy));
    *out_name = copy;
    return RP_OK;
}

static rp_status make_room(int count, int *room, size_t bytes, const char *what,
                           void *in_out_array) {
    if (count < *room) return RP_OK;
    int grown = *room ? 2 * *room : FIRST_ROOM;
    RP_TRY(rpi_grow_array((size_t)count, (size_t)grown, bytes, what, in_out_array));
    *room = grown;
    return RP_OK;
}

/* ---- dimensions ---- */

static rp_status add_dimension(rpi_graph *graph, const char *name) {
    if (!name || !*name) return RP_FAIL(INVALID, "a dimension without a name");
    if (graph->dimension_count == RPI_DIMENSIONS)
        return RP_FAIL(INVALID, "dimension '%s': a graph has at most %d named ones", name,
                       (int)RPI_DIMENSIONS);
    RP_TRY(copy_name(graph, name, &graph->dimensions[graph->dimension_count]));
    graph->dimension_count++;
    return RP_OK;
}

int64_t rpi_graph_dimension(rpi_graph *graph, const char *name) {
    if (graph->status != RP_OK) return 0;
    int index = 0;
    while (name && index < graph->dimension_count &&
           strcmp(graph->dimensions[index], name) != 0)
        index++;
    if (index < graph->dimension_count) return rpi_dimension_symbol(index);
    rp_status status = add_dimension(graph, name);
    if (status == RP_OK) return rpi_dimension_symbol(index);
    keep_failure(graph, status);
    return 0;
}

int rpi_graph_dimension_count(const rpi_graph *graph) {
    return graph->dimension_count;
}

const char *rpi_graph_dimension_name(const rpi_graph *graph, int index) {
    return graph->dimensions[index];
}

/* ---- values ---- */

static rp_status append_value(rpi_graph *graph, const rpi_value *value, rpi_value_id *out_id) {
    RP_TRY(make_room(graph->value_count, &graph->value_room, sizeof *graph->values,
                     "values of a graph", &graph->values));
    graph->values[graph->value_count] = *value;
    *out_id = graph->value_count++;
    return RP_OK;
}

/* Parameters and states share one space of names: both are saved in checkpoints. */
static bool same_space(rpi_value_kind a, rpi_value_kind b) {
    bool a_weight = a == RPI_VALUE_PARAMETER || a == RPI_VALUE_STATE;
    bool b_weight = b == RPI_VALUE_PARAMETER || b == RPI_VALUE_STATE;
    return a == b || (a_weight && b_weight);
}

static rp_status check_leaf(const rpi_graph *graph, const char *name, rpi_value_kind kind,
                            const rpi_shape *shape) {
    if (!name || !*name) return RP_FAIL(INVALID, "%s without a name", kind_names[kind]);
    for (int i = 0; i < graph->value_count; i++)
        if (same_space(graph->values[i].kind, kind) && !strcmp(graph->values[i].name, name))
            return RP_FAIL(INVALID, "%s '%s' is there already", kind_names[kind], name);
    if (shape->dims < 0 || shape->dims > RPI_MAX_DIMS)
        return RP_FAIL(INVALID, "%s '%s' has %d dimensions; at most %d are allowed",
                       kind_names[kind], name, shape->dims, RPI_MAX_DIMS);
    for (int i = 0; i < shape->dims; i++) {
        bool is_named = rpi_dimension_is_named(shape->size[i]);
        char text[96];
        if (shape->size[i] == 0 || (is_named && kind != RPI_VALUE_INPUT))
            return RP_FAIL(
                INVALID, "%s '%s': dimension %d is %s", kind_names[kind], name, i,
                rpi_dimension_text(shape->size[i], graph->dimensions, text, sizeof text));
    }
    return RP_OK;
}

static rp_status try_leaf(rpi_graph *graph, const char *name, rpi_value value,
                          rpi_value_id *out_id) {
    RP_TRY(check_leaf(graph, name, value.kind, &value.shape));
    RP_TRY(copy_name(graph, name, &value.name));
    value.index = rpi_graph_kind_count(graph, value.kind);
    value.producer = -1;
    return append_value(graph, &value, out_id);
}

static rpi_value_id add_leaf(rpi_graph *graph, const char *name, rpi_value_kind kind,
                             rp_dtype dtype, rpi_shape shape) {
    rpi_value_id id = RPI_NO_VALUE;
    if (graph->status != RP_OK) return RPI_NO_VALUE;
    rpi_value value = {.kind = kind, .dtype = dtype, .shape = shape};
    rp_status status = try_leaf(graph, name, value, &id);
    return status == RP_OK ? id : keep_failure(graph, status);
}

rpi_value_id rpi_graph_input(rpi_graph *graph, const char *name, rp_dtype dtype,
                             rpi_shape shape) {
    return add_leaf(graph, name, RPI_VALUE_INPUT, dtype, shape);
}

rpi_value_id rpi_graph_parameter(rpi_graph *graph, const char *name, rpi_shape shape) {
    return add_leaf(graph, name, RPI_VALUE_PARAMETER, RP_F32, shape);
}

rpi_value_id rpi_graph_state(rpi_graph *graph, const char *name, rpi_shape shape) {
    return add_leaf(graph, name, RPI_VALUE_STATE, RP_F32, shape);
}

static rp_status check_input(const rpi_graph *graph, const rpi_op_input *wanted,
                             rpi_value_id id) {
    if (id < 0 || id >= graph->value_count)
        return RP_FAIL(INVALID, "%s is missing", wanted->name);
    const rpi_value *value = &graph->values[id];
    if (value->dtype != wanted->dtype)
        return RP_FAIL(INVALID, "%s '%s' is %s; %s is wanted", wanted->name, value->name,
                       rp_dtype_name(value->dtype), rp_dtype_name(wanted->dtype));
    bool fits = wanted->role == RPI_STATE    ? value->kind == RPI_VALUE_STATE
                : wanted->role == RPI_WEIGHT ? value->kind == RPI_VALUE_PARAMETER
                : wanted->role == RPI_CACHE  ? value->kind == RPI_VALUE_INPUT
                                             : value->kind != RPI_VALUE_STATE;
    if (!fits)
        return RP_FAIL(INVALID, "%s '%s' is of kind %s; %s is wanted", wanted->name,
                       value->name, kind_names[value->kind],
                       wanted->role == RPI_STATE    ? "a state"
                       : wanted->role == RPI_WEIGHT ? "a parameter"
                       : wanted->role == RPI_CACHE  ? "an input of the graph"
                                                    : "anything but a state");
    return RP_OK;
}

/* Another node would read the cache before or after this one has written it. */
static rp_status check_cache_is_free(const rpi_graph *graph, const rpi_op_input *wanted,
                                     rpi_value_id id) {
    for (int n = 0; n < graph->node_count; n++)
        for (int i = 0; i < graph->nodes[n].input_count; i++)
            if (graph->nodes[n].inputs[i] == id)
                return RP_FAIL(INVALID, "%s '%s' is used by node '%s' already", wanted->name,
                               graph->values[id].name, graph->nodes[n].name);
    return RP_OK;
}

static rp_status check_inputs(const rpi_graph *graph, rpi_node *node) {
    const rpi_op *op = node->op;
    while (node->input_count > 0 && node->inputs[node->input_count - 1] == RPI_NO_VALUE &&
           node->input_count <= op->input_count && op->inputs[node->input_count - 1].optional)
        node->input_count--;
    if (node->input_count > op->input_count)
        return RP_FAIL(INVALID, "%d inputs; it takes %d", node->input_count, op->input_count);
    for (int i = 0; i < node->input_count; i++) {
        RP_TRY(check_input(graph, &op->inputs[i], node->inputs[i]));
        if (op->inputs[i].role == RPI_CACHE)
            RP_TRY(check_cache_is_free(graph, &op->inputs[i], node->inputs[i]));
    }
    if (node->input_count < op->input_count && !op->inputs[node->input_count].optional)
        return RP_FAIL(INVALID, "%s is missing", op->inputs[node->input_count].name);
    return RP_OK;
}

static rp_status infer_node(const rpi_graph *graph, const rpi_node *node, rpi_shape *shapes) {
    rpi_shape inputs[RPI_NODE_INPUTS];
    for (int i = 0; i < node->input_count; i++)
        inputs[i] = graph->values[node->inputs[i]].shape;
    return node->op->infer(node->attributes, node->input_count, inputs, shapes);
}

static rp_status check_node(const rpi_graph *graph, rpi_node *node, rpi_shape *shapes) {
    for (int i = 0; i < graph->node_count; i++)
        if (!strcmp(graph->nodes[i].name, node->name))
            return RP_FAIL(INVALID, "a node of this name is there already");
    RP_TRY(check_inputs(graph, node));
    return infer_node(graph, node, shapes);
}

static rp_status append_node(rpi_graph *graph, rpi_node *node, const rpi_shape *shapes) {
    RP_TRY(make_room(graph->node_count, &graph->node_room, sizeof *graph->nodes,
                     "nodes of a graph", &graph->nodes));
    int outputs = node->op->count_outputs ? node->op->count_outputs(node->attributes)
                                          : node->op->output_count;
    for (int i = 0; i < outputs; i++) {
        rpi_value value = {.name = node->name,
                           .kind = RPI_VALUE_ACTIVATION,
                           .dtype = node->op->outputs[i].dtype,
                           .shape = shapes[i],
                           .index = i,
                           .producer = graph->node_count};
        RP_TRY(append_value(graph, &value, &node->outputs[i]));
    }
    node->output_count = outputs;
    graph->nodes[graph->node_count++] = *node;
    return RP_OK;
}

/* Passes on the op's message, with the node's name in front and dimensions by name. */
static rp_status refuse_node(const rpi_graph *graph, rp_status status, const rpi_node *node) {
    char text[RPI_ERROR_BYTES];
    rpi_dimension_name_all(rp_last_error()->message, graph->dimensions, graph->dimension_count,
                           text, sizeof text);
    return rpi_fail(status, __FILE__, __LINE__, "node '%s' (%s): %s", node->name,
                    node->op->name, text);
}

static rp_status try_add(rpi_graph *graph, rpi_node *node, const char *name) {
    rpi_shape shapes[RPI_NODE_OUTPUTS] = {{0}};
    if (!name || !*name) return RP_FAIL(INVALID, "a %s node without a name", node->op->name);
    RP_TRY(copy_name(graph, name, &node->name));
    if (node->op->attribute_bytes)
        RP_TRY(
            copy_bytes(graph, node->attributes, node->op->attribute_bytes, &node->attributes));
    rp_status status = check_node(graph, node, shapes);
    if (status != RP_OK) return refuse_node(graph, status, node);
    return append_node(graph, node, shapes);
}

rpi_value_id rpi_graph_add(rpi_graph *graph, const char *name, const rpi_op *op,
                           const void *attributes, int input_count,
                           const rpi_value_id *inputs) {
    if (graph->status != RP_OK) return RPI_NO_VALUE;
    rpi_node node = {.op = op, .attributes = attributes, .input_count = input_count};
    if (input_count < 0 || input_count > RPI_NODE_INPUTS)
        return keep_failure(graph, RP_FAIL(INVALID, "node '%s' (%s): %d inputs; it takes %d",
                                           name, op->name, input_count, op->input_count));
    for (int i = 0; i < input_count; i++) node.inputs[i] = inputs[i];
    rp_status status = try_add(graph, &node, name);
    return status == RP_OK ? node.outputs[0] : keep_failure(graph, status);
}

rpi_value_id rpi_graph_output(const rpi_graph *graph, rpi_value_id value, int index) {
    if (value < 0 || value >= graph->value_count) return RPI_NO_VALUE;
    int producer = graph->values[value].producer;
    if (producer < 0 || index < 0 || index >= graph->nodes[producer].output_count)
        return RPI_NO_VALUE;
    return graph->nodes[producer].outputs[index];
}

int rpi_graph_value_count(const rpi_graph *graph) {
    return graph->value_count;
}

int rpi_graph_node_count(const rpi_graph *graph) {
    return graph->node_count;
}

int rpi_graph_kind_count(const rpi_graph *graph, rpi_value_kind kind) {
    int count = 0;
    for (int i = 0; i < graph->value_count; i++) count += graph->values[i].kind == kind;
    return count;
}

rpi_value_id rpi_graph_kind_at(const rpi_graph *graph, rpi_value_kind kind, int index) {
    for (int i = 0; i < graph->value_count; i++)
        if (graph->values[i].kind == kind && index-- == 0) return i;
    return RPI_NO_VALUE;
}

const rpi_value *rpi_graph_value(const rpi_graph *graph, rpi_value_id id) {
    return &graph->values[id];
}

const rpi_node *rpi_graph_node(const rpi_graph *graph, int index) {
    return &graph->nodes[index];
}

rpi_value_id rpi_graph_find(const rpi_graph *graph, rpi_value_kind kind, const char *name) {
    for (int i = 0; i < graph->value_count; i++)
        if (graph->values[i].kind == kind && !strcmp(graph->values[i].name, name)) return i;
    return RPI_NO_VALUE;
}
