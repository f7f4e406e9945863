#include "engine/weights.h"

#include "base/memory.h"
#include "base/status.h"
#include "engine/op.h"

#include <stdlib.h>
#include <string.h>

struct rpi_weights {
    int parameter_count, state_count;
    rpi_weight *parameters, *states; /* in the order of their arenas */
    int *slot_of_value;              /* index in one of them; -1: neither */
    int value_count;
    const rpi_graph *graph;
    uint64_t *versions; /* of parameters */
    int64_t count, states_count;
    float *values, *gradients, *state_values;
};

/* When the gradient of a parameter is final: backward visits nodes from the last to the first,
 * so after the first node that uses it; then by the node's order of inputs. */
typedef struct finality {
    rpi_value_id value;
    int node, input; /* node -1: no gradient arrives */
} finality;

static int earlier_final(const void *a, const void *b) {
    const finality *x = a, *y = b;
    if (x->node != y->node) return x->node > y->node ? -1 : 1;
    if (x->input != y->input) return x->input < y->input ? -1 : 1;
    return x->value < y->value ? -1 : x->value > y->value;
}

/* on_path[v]: the gradient of the loss reaches value v. */
static void visit_node(const rpi_graph *graph, int index, bool *on_path, finality *of_value) {
    const rpi_node *node = rpi_graph_node(graph, index);
    bool reached = false;
    for (int i = 0; i < node->output_count; i++) reached |= on_path[node->outputs[i]];
    for (int i = node->input_count - 1; reached && i >= 0; i--) {
        if (!node->op->inputs[i].has_gradient) continue;
        on_path[node->inputs[i]] = true;
        of_value[node->inputs[i]].node = index;
        of_value[node->inputs[i]].input = i;
    }
}

static int order_parameters(const rpi_graph *graph, rpi_value_id loss, bool *on_path,
                            finality *order) {
    int values = rpi_graph_value_count(graph), parameters = 0;
    for (int i = 0; i < values; i++) order[i] = (finality){.value = i, .node = -1};
    if (loss != RPI_NO_VALUE) {
        on_path[loss] = true;
        for (int i = rpi_graph_node_count(graph) - 1; i >= 0; i--)
            visit_node(graph, i, on_path, order);
    }
    for (int i = 0; i < values; i++)
        if (rpi_graph_value(graph, i)->kind == RPI_VALUE_PARAMETER)
            order[parameters++] = order[i];
    qsort(order, (size_t)parameters, sizeof *order, earlier_final);
    return parameters;
}

static int64_t place(rpi_weights *weights, rpi_weight *weight, rpi_value_id id, int slot,
                     int64_t first) {
    const rpi_value *value = rpi_graph_value(weights->graph, id);
    *weight = (rpi_weight){.value = id,
                           .name = value->name,
                           .shape = value->shape,
                           .first = first,
                           .count = rpi_shape_count(&value->shape)};
    weights->slot_of_value[id] = slot;
    return first + weight->count;
}

static rp_status lay_out(rpi_weights *weights, rpi_value_id loss) {
    const rpi_graph *graph = weights->graph;
    size_t values = (size_t)weights->value_count;
    bool *on_path = NULL;
    finality *order = NULL;
    RP_TRY(rpi_alloc_array(values, sizeof *on_path, "the order of parameters", &on_path));
    rp_status status =
        rpi_alloc_array(values, sizeof *order, "the order of parameters", &order);
    if (status == RP_OK) {
        order_parameters(graph, loss, on_path, order);
        for (int i = 0; i < weights->parameter_count; i++)
            weights->count =
                place(weights, &weights->parameters[i], order[i].value, i, weights->count);
        for (int i = 0; i < weights->state_count; i++)
            weights->states_count =
                place(weights, &weights->states[i],
                      rpi_graph_kind_at(graph, RPI_VALUE_STATE, i), i, weights->states_count);
    }
    rpi_free(order);
    rpi_free(on_path);
    return status;
}

static rp_status build(rpi_weights *weights, rpi_value_id loss) {
    size_t parameters = (size_t)weights->parameter_count, states = (size_t)weights->state_count;
    RP_TRY(rpi_alloc_array(parameters, sizeof(rpi_weight), "parameters", &weights->parameters));
    RP_TRY(rpi_alloc_array(states, sizeof(rpi_weight), "states", &weights->states));
    RP_TRY(rpi_alloc_array(parameters, sizeof(uint64_t), "versions", &weights->versions));
    RP_TRY(rpi_alloc_array((size_t)weights->value_count, sizeof(int), "parameters",
                           &weights->slot_of_value));
    memset(weights->slot_of_value, -1, (size_t)weights->value_count * sizeof(int));
    for (size_t i = 0; i < parameters; i++) weights->versions[i] = 1;
    RP_TRY(lay_out(weights, loss));
    size_t count = (size_t)weights->count;
    RP_TRY(rpi_alloc_array(count, sizeof(float), "parameter values", &weights->values));
    RP_TRY(rpi_alloc_array(count, sizeof(float), "gradients", &weights->gradients));
    return rpi_alloc_array((size_t)weights->states_count, sizeof(float), "state values",
                           &weights->state_values);
}

rp_status rpi_weights_create(const rpi_graph *graph, rpi_value_id loss,
                             rpi_weights **out_weights) {
    RP_TRY(rpi_graph_check(graph));
    if (loss < RPI_NO_VALUE || loss >= rpi_graph_value_count(graph))
        return RP_FAIL(INVALID, "the loss is no value of the graph");
    rpi_weights *weights = NULL;
    RP_TRY(rpi_alloc(sizeof *weights, "weights", &weights));
    weights->graph = graph;
    weights->value_count = rpi_graph_value_count(graph);
    weights->parameter_count = rpi_graph_kind_count(graph, RPI_VALUE_PARAMETER);
    weights->state_count = rpi_graph_kind_count(graph, RPI_VALUE_STATE);
    rp_status status = build(weights, loss);
    if (status != RP_OK) {
        rpi_weights_destroy(weights);
        return status;
    }
    *out_weights = weights;
    return RP_OK;
}

void rpi_weights_destroy(rpi_weights *weights) {
    if (!weights) return;
    rpi_free(weights->parameters);
    rpi_free(weights->states);
    rpi_free(weights->versions);
    rpi_free(weights->slot_of_value);
    rpi_free(weights->values);
    rpi_free(weights->gradients);
    rpi_free(weights->state_values);
    rpi_free(weights);
}

const rpi_graph *rpi_weights_graph(const rpi_weights *weights) {
    return weights->graph;
}

int rpi_weights_parameter_count(const rpi_weights *weights) {
    return weights->parameter_count;
}

int rpi_weights_state_count(const rpi_weights *weights) {
    return weights->state_count;
}

const rpi_weight *rpi_weights_parameter(const rpi_weights *weights, int index) {
    return &weights->parameters[index];
}

const rpi_weight *rpi_weights_state(const rpi_weights *weights, int index) {
    return &weights->states[index];
}

const rpi_weight *rpi_weights_of(const rpi_weights *weights, rpi_value_id value) {
    if (value < 0 || value >= weights->value_count || weights->slot_of_value[value] < 0)
        return NULL;
    int slot = weights->slot_of_value[value];
    bool state = rpi_graph_value(weights->graph, value)->kind == RPI_VALUE_STATE;
    return state ? &weights->states[slot] : &weights->parameters[slot];
}

const rpi_weight *rpi_weights_find(const rpi_weights *weights, const char *name) {
    for (int i = 0; i < weights->parameter_count; i++)
        if (!strcmp(weights->parameters[i].name, name)) return &weights->parameters[i];
    for (int i = 0; i < weights->state_count; i++)
        if (!strcmp(weights->states[i].name, name)) return &weights->states[i];
    return NULL;
}

int64_t rpi_weights_count(const rpi_weights *weights) {
    return weights->count;
}

int64_t rpi_weights_states_count(const rpi_weights *weights) {
    return weights->states_count;
}

float *rpi_weights_values(rpi_weights *weights) {
    return weights->values;
}

float *rpi_weights_gradients(rpi_weights *weights) {
    return weights->gradients;
}

float *rpi_weights_states(rpi_weights *weights) {
    return weights->state_values;
}

void rpi_weights_changed(rpi_weights *weights, int64_t first, int64_t count) {
    if (count <= 0) return;
    for (int i = 0; i < weights->parameter_count; i++) {
        const rpi_weight *weight = &weights->parameters[i];
        if (weight->first < first + count && first < weight->first + weight->count)
            weights->versions[i]++;
    }
}

uint64_t rpi_weights_version(const rpi_weights *weights, rpi_value_id parameter) {
    return weights->versions[weights->slot_of_value[parameter]];
}
