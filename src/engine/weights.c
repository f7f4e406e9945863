#include "engine/weights.h"

#include "base/memory.h"
#include "base/status.h"
#include "engine/op.h"

#include <stdlib.h>
#include <string.h>

struct rpi_weights {
    rpi_arena *memory; /* names */
    int parameter_count, state_count;
    rpi_weight *parameters, *states; /* in the order of their arenas */
    const rpi_weight **by_name;      /* all of them, sorted */
    uint64_t *versions;              /* of parameters */
    int64_t count, states_count;
    float *values, *gradients, *state_values;
    float **value_at, **gradient_at, **state_at; /* where each lies now */
    void (*give_values)(void *memory);
    void (*give_gradients)(void *memory);
};

enum { BLOCK_BYTES = 16384 };

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

/* What is found out of each value, from the loss and the seeds back. */
typedef struct reach {
    bool is_needed; /* the part computes or reads it */
    bool on_path;   /* the gradient of the loss, or a seed, reaches it */
    bool is_given;
} reach;

static void visit_node(const rpi_graph *graph, int index, reach *of, finality *order) {
    const rpi_node *node = rpi_graph_node(graph, index);
    bool needed = false, reached = false;
    for (int i = 0; i < node->output_count; i++) {
        const reach *output = &of[node->outputs[i]];
        needed |= output->is_needed && !output->is_given;
        reached |= output->on_path && !output->is_given;
    }
    for (int i = node->input_count - 1; i >= 0; i--) {
        rpi_value_id input = node->inputs[i];
        of[input].is_needed |= needed;
        if (!reached || !node->op->inputs[i].has_gradient) continue;
        of[input].on_path = true;
        order[input].node = index;
        order[input].input = i;
    }
}

static bool is_part(const rpi_weights_source *source) {
    return source->given_count > 0 || source->seed_count > 0;
}

static void visit_graph(const rpi_weights_source *source, reach *of, finality *order) {
    for (int i = 0; i < source->given_count; i++)
        of[source->given[i]] = (reach){.is_needed = true, .is_given = true};
    for (int i = 0; i < source->seed_count; i++)
        of[source->seeds[i]].is_needed = of[source->seeds[i]].on_path = true;
    if (source->loss != RPI_NO_VALUE)
        of[source->loss].is_needed = of[source->loss].on_path = true;
    for (int i = rpi_graph_node_count(source->graph) - 1; i >= 0; i--)
        visit_node(source->graph, i, of, order);
}

static bool is_held(const rpi_weights_source *source, const reach *of, rpi_value_id value,
                    rpi_value_kind kind) {
    return rpi_graph_value(source->graph, value)->kind == kind &&
           (of[value].is_needed || !is_part(source));
}

static int order_parameters(const rpi_weights_source *source, reach *of, finality *order) {
    int values = rpi_graph_value_count(source->graph), parameters = 0;
    for (int i = 0; i < values; i++) order[i] = (finality){.value = i, .node = -1};
    visit_graph(source, of, order);
    for (int i = 0; i < values; i++)
        if (is_held(source, of, i, RPI_VALUE_PARAMETER)) order[parameters++] = order[i];
    qsort(order, (size_t)parameters, sizeof *order, earlier_final);
    return parameters;
}

/* ---- the table ---- */

static const char *kind_name(bool is_state) {
    return is_state ? "state" : "parameter";
}

static const rpi_weight *search(const rpi_weight *list, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (!strcmp(list[i].name, name)) return &list[i];
    return NULL;
}

/* The same thing under the same name? */
static rp_status check_match(const rpi_weight *weight, const rpi_value *value) {
    bool is_state = value->kind == RPI_VALUE_STATE;
    char here[96], there[96];
    if (weight->is_state == is_state && rpi_shape_equal(&weight->shape, &value->shape))
        return RP_OK;
    return RP_FAIL(INVALID,
                   "'%s' is a %s of %s in the model's weights, but a %s of %s in the "
                   "graph",
                   value->name, kind_name(weight->is_state),
                   rpi_op_shape_text(&weight->shape, here, sizeof here), kind_name(is_state),
                   rpi_op_shape_text(&value->shape, there, sizeof there));
}

/* Append one value, unless a graph before has brought it. */
static rp_status add(rpi_weights *weights, const rpi_graph *graph, rpi_value_id id) {
    const rpi_value *value = rpi_graph_value(graph, id);
    bool is_state = value->kind == RPI_VALUE_STATE;
    const rpi_weight *there =
        search(weights->parameters, weights->parameter_count, value->name);
    if (!there) there = search(weights->states, weights->state_count, value->name);
    if (there) return check_match(there, value);
    char *name = NULL;
    size_t bytes = strlen(value->name) + 1;
    RP_TRY(rpi_arena_alloc(weights->memory, bytes, &name));
    memcpy(name, value->name, bytes);
    int64_t *total = is_state ? &weights->states_count : &weights->count;
    int *count = is_state ? &weights->state_count : &weights->parameter_count;
    rpi_weight *weight = is_state ? &weights->states[*count] : &weights->parameters[*count];
    *weight = (rpi_weight){.name = name,
                           .shape = value->shape,
                           .is_state = is_state,
                           .index = *count,
                           .first = *total,
                           .count = rpi_shape_count(&value->shape)};
    *total += weight->count;
    ++*count;
    return RP_OK;
}

static rp_status add_in_order(rpi_weights *weights, const rpi_weights_source *source, reach *of,
                              finality *order) {
    int parameters = order_parameters(source, of, order);
    for (int i = 0; i < parameters; i++) RP_TRY(add(weights, source->graph, order[i].value));
    for (int i = 0; i < rpi_graph_kind_count(source->graph, RPI_VALUE_STATE); i++) {
        rpi_value_id state = rpi_graph_kind_at(source->graph, RPI_VALUE_STATE, i);
        if (is_held(source, of, state, RPI_VALUE_STATE))
            RP_TRY(add(weights, source->graph, state));
    }
    return RP_OK;
}

static rp_status add_source(rpi_weights *weights, const rpi_weights_source *source) {
    size_t values = (size_t)rpi_graph_value_count(source->graph);
    reach *of = NULL;
    finality *order = NULL;
    RP_TRY(rpi_alloc_array(values, sizeof *of, "the order of parameters", &of));
    rp_status status =
        rpi_alloc_array(values, sizeof *order, "the order of parameters", &order);
    if (status == RP_OK) status = add_in_order(weights, source, of, order);
    rpi_free(order);
    rpi_free(of);
    return status;
}

static int name_order(const void *a, const void *b) {
    const rpi_weight *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static rp_status index_names(rpi_weights *weights) {
    size_t parameters = (size_t)weights->parameter_count, states = (size_t)weights->state_count;
    RP_TRY(rpi_alloc_array(parameters + states, sizeof *weights->by_name, "names",
                           &weights->by_name));
    for (size_t i = 0; i < parameters; i++) weights->by_name[i] = &weights->parameters[i];
    for (size_t i = 0; i < states; i++) weights->by_name[parameters + i] = &weights->states[i];
    qsort(weights->by_name, parameters + states, sizeof *weights->by_name, name_order);
    return RP_OK;
}

static rp_status check_values(const rpi_weights_source *source, const char *what,
                              const rpi_value_id *values, int count) {
    for (int i = 0; i < count; i++)
        if (values[i] < 0 || values[i] >= rpi_graph_value_count(source->graph))
            return RP_FAIL(INVALID, "%s (value %d) is no value of the graph", what, values[i]);
    return RP_OK;
}

static rp_status check_source(const rpi_weights_source *source) {
    RP_TRY(rpi_graph_check(source->graph));
    RP_TRY(check_values(source, "a given value", source->given, source->given_count));
    RP_TRY(check_values(source, "a seed", source->seeds, source->seed_count));
    if (source->loss == RPI_NO_VALUE) return RP_OK;
    return check_values(source, "the loss", &source->loss, 1);
}

static rp_status make_room(rpi_weights *weights, size_t parameters, size_t states) {
    RP_TRY(rpi_arena_create(BLOCK_BYTES, &weights->memory));
    RP_TRY(rpi_alloc_array(parameters, sizeof(rpi_weight), "parameters", &weights->parameters));
    RP_TRY(rpi_alloc_array(states, sizeof(rpi_weight), "states", &weights->states));
    RP_TRY(rpi_alloc_array(parameters, sizeof(uint64_t), "versions", &weights->versions));
    RP_TRY(rpi_alloc_array(parameters, sizeof(float *), "places", &weights->value_at));
    RP_TRY(rpi_alloc_array(parameters, sizeof(float *), "places", &weights->gradient_at));
    RP_TRY(rpi_alloc_array(states, sizeof(float *), "places", &weights->state_at));
    for (size_t i = 0; i < parameters; i++) weights->versions[i] = 1;
    return RP_OK;
}

static rp_status build_table(rpi_weights *weights, const rpi_weights_source *sources,
                             int count) {
    size_t parameters = 0, states = 0;
    for (int i = 0; i < count; i++) {
        RP_TRY(check_source(&sources[i]));
        parameters += (size_t)rpi_graph_kind_count(sources[i].graph, RPI_VALUE_PARAMETER);
        states += (size_t)rpi_graph_kind_count(sources[i].graph, RPI_VALUE_STATE);
    }
    RP_TRY(make_room(weights, parameters, states));
    for (int i = 0; i < count; i++) RP_TRY(add_source(weights, &sources[i]));
    return index_names(weights);
}

static rp_status take_own(void *context, size_t bytes, const char *what, void **out_memory) {
    (void)context;
    return rpi_alloc(bytes, what, out_memory);
}

static void give_own(void *memory) {
    rpi_free(memory);
}

const rpi_arena_memory rpi_arena_memory_own = {.take = take_own, .give = give_own};

static rp_status add_arena(const rpi_weights *weights, const rpi_arena_memory *memory,
                           const char *what, float **out_arena,
                           void (**out_give)(void *memory)) {
    void *arena = NULL;
    size_t count = (size_t)weights->count;
    if (count > SIZE_MAX / sizeof(float))
        return RP_FAIL(NOMEM, "no memory for %zu elements of %s", count, what);
    RP_TRY(memory->take(memory->context, count * sizeof(float), what, &arena));
    *out_arena = arena;
    *out_give = memory->give;
    return RP_OK;
}

static void place_all(rpi_weights *weights) {
    for (int i = 0; i < weights->parameter_count; i++) {
        rpi_weights_place_values(weights, i, NULL);
        rpi_weights_place_gradient(weights, i, NULL);
    }
    for (int i = 0; i < weights->state_count; i++) rpi_weights_place_state(weights, i, NULL);
}

static rp_status add_values(rpi_weights *weights, const rpi_arena_memory *memory) {
    return add_arena(weights, memory, "parameter values", &weights->values,
                     &weights->give_values);
}

static rp_status add_gradients(rpi_weights *weights, const rpi_arena_memory *memory) {
    return add_arena(weights, memory, "gradients", &weights->gradients,
                     &weights->give_gradients);
}

/* What elements a table has. */
typedef struct extent {
    bool states;
    rpi_weights_memory memory;
} extent;

static rp_status add_elements(rpi_weights *weights, const extent *has) {
    if (has->memory.values) RP_TRY(add_values(weights, has->memory.values));
    if (has->memory.gradients) RP_TRY(add_gradients(weights, has->memory.gradients));
    if (has->states)
        RP_TRY(rpi_alloc_array((size_t)weights->states_count, sizeof(float), "state values",
                               &weights->state_values));
    place_all(weights);
    return RP_OK;
}

static rp_status create(const rpi_weights_source *sources, int count, const extent *has,
                        rpi_weights **out_weights) {
    rpi_weights *weights = NULL;
    RP_TRY(rpi_alloc(sizeof *weights, "weights", &weights));
    rp_status status = build_table(weights, sources, count);
    if (status == RP_OK) status = add_elements(weights, has);
    if (status != RP_OK) {
        rpi_weights_destroy(weights);
        return status;
    }
    *out_weights = weights;
    return RP_OK;
}

static const extent whole = {true, {&rpi_arena_memory_own, &rpi_arena_memory_own}};

rp_status rpi_weights_create_shared(const rpi_weights_source *sources, int count,
                                    rpi_weights **out_weights) {
    return create(sources, count, &whole, out_weights);
}

rp_status rpi_weights_create(const rpi_graph *graph, rpi_value_id loss,
                             rpi_weights **out_weights) {
    return create(&(rpi_weights_source){.graph = graph, .loss = loss}, 1, &whole, out_weights);
}

rp_status rpi_weights_create_with(const rpi_weights_source *sources, int count,
                                  const rpi_weights_memory *memory, rpi_weights **out_weights) {
    return create(sources, count, &(extent){true, *memory}, out_weights);
}

rp_status rpi_weights_create_shared_table(const rpi_weights_source *sources, int count,
                                          rpi_weights **out_weights) {
    static const extent none;
    return create(sources, count, &none, out_weights);
}

rp_status rpi_weights_create_table(const rpi_graph *graph, rpi_value_id loss,
                                   rpi_weights **out_weights) {
    return rpi_weights_create_shared_table(&(rpi_weights_source){.graph = graph, .loss = loss},
                                           1, out_weights);
}

rp_status rpi_weights_open_values(rpi_weights *weights) {
    if (weights->values) return RP_OK;
    RP_TRY(add_values(weights, &rpi_arena_memory_own));
    for (int i = 0; i < weights->parameter_count; i++)
        if (!weights->value_at[i]) rpi_weights_place_values(weights, i, NULL);
    return RP_OK;
}

void rpi_weights_close_values(rpi_weights *weights) {
    float *arena = weights->values;
    weights->values = NULL;
    for (int i = 0; arena && i < weights->parameter_count; i++)
        if (weights->value_at[i] == arena + weights->parameters[i].first)
            weights->value_at[i] = NULL;
    if (arena) weights->give_values(arena);
}

void rpi_weights_destroy(rpi_weights *weights) {
    if (!weights) return;
    rpi_arena_destroy(weights->memory);
    rpi_free(weights->parameters);
    rpi_free(weights->states);
    rpi_free(weights->by_name);
    rpi_free(weights->versions);
    rpi_free(weights->value_at);
    rpi_free(weights->gradient_at);
    rpi_free(weights->state_at);
    if (weights->give_values) weights->give_values(weights->values);
    if (weights->give_gradients) weights->give_gradients(weights->gradients);
    rpi_free(weights->state_values);
    rpi_free(weights);
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

static int compare_name(const void *name, const void *weight) {
    const rpi_weight *const *it = weight;
    return strcmp(name, (*it)->name);
}

const rpi_weight *rpi_weights_find(const rpi_weights *weights, const char *name) {
    size_t count = (size_t)weights->parameter_count + (size_t)weights->state_count;
    const rpi_weight *const *found =
        bsearch(name, weights->by_name, count, sizeof *weights->by_name, compare_name);
    return found ? *found : NULL;
}

rp_status rpi_weights_match(const rpi_weights *weights, const rpi_graph *graph,
                            rpi_value_id value, const rpi_weight **out_weight) {
    const rpi_value *wanted = rpi_graph_value(graph, value);
    const rpi_weight *weight = rpi_weights_find(weights, wanted->name);
    if (!weight)
        return RP_FAIL(NOT_FOUND, "the model's weights have no %s '%s'",
                       kind_name(wanted->kind == RPI_VALUE_STATE), wanted->name);
    RP_TRY(check_match(weight, wanted));
    *out_weight = weight;
    return RP_OK;
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

float *rpi_weights_value_at(const rpi_weights *weights, int index) {
    return weights->value_at[index];
}

float *rpi_weights_gradient_at(const rpi_weights *weights, int index) {
    return weights->gradient_at[index];
}

float *rpi_weights_state_at(const rpi_weights *weights, int index) {
    return weights->state_at[index];
}

static float *in_arena(float *arena, const rpi_weight *weight) {
    return arena ? arena + weight->first : NULL;
}

void rpi_weights_place_values(rpi_weights *weights, int index, float *values) {
    weights->value_at[index] =
        values ? values : in_arena(weights->values, &weights->parameters[index]);
}

void rpi_weights_place_gradient(rpi_weights *weights, int index, float *gradient) {
    weights->gradient_at[index] =
        gradient ? gradient : in_arena(weights->gradients, &weights->parameters[index]);
}

void rpi_weights_place_state(rpi_weights *weights, int index, float *values) {
    weights->state_at[index] =
        values ? values : in_arena(weights->state_values, &weights->states[index]);
}

void rpi_weights_changed(rpi_weights *weights, int64_t first, int64_t count) {
    if (count <= 0) return;
    for (int i = 0; i < weights->parameter_count; i++) {
        const rpi_weight *weight = &weights->parameters[i];
        if (weight->first < first + count && first < weight->first + weight->count)
            weights->versions[i]++;
    }
}

uint64_t rpi_weights_version(const rpi_weights *weights, int index) {
    return weights->versions[index];
}
