#include "base/memory.h"
#include "base/status.h"
#include "base/suggest.h"
#include "engine/compile.h"
#include "engine/layers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const rpi_op rpi_op_external;

bool rpi_is_external(const rpi_op *op) {
    return op == &rpi_op_external;
}

/* ---- dimensions ---- */

static const char *dimension_name(const void *context, int index) {
    const rpi_graph *graph = context;
    return index < rpi_graph_dimension_count(graph) ? rpi_graph_dimension_name(graph, index)
                                                    : NULL;
}

static rp_status read_binding(rpi_compiler *compiler, const rpi_dimension_binding *binding) {
    const rpi_graph *graph = compiler->program->graph;
    char hint[96];
    int index = 0, count = rpi_graph_dimension_count(graph);
    while (index < count && strcmp(rpi_graph_dimension_name(graph, index), binding->name) != 0)
        index++;
    if (index == count)
        return RP_FAIL(
            INVALID, "the graph has no dimension '%s'%s", binding->name,
            rpi_suggest_text(binding->name, dimension_name, graph, hint, sizeof hint));
    if (binding->size < 1)
        return RP_FAIL(INVALID, "dimension '%s' is %lld; at least 1 is wanted", binding->name,
                       (long long)binding->size);
    if (compiler->dimensions[index])
        return RP_FAIL(INVALID, "dimension '%s' is bound twice", binding->name);
    compiler->dimensions[index] = binding->size;
    return RP_OK;
}

static rp_status read_bindings(rpi_compiler *compiler) {
    for (int i = 0; i < RPI_DIMENSIONS && compiler->options->dimensions[i].name; i++)
        RP_TRY(read_binding(compiler, &compiler->options->dimensions[i]));
    return RP_OK;
}

static rp_status bind_shape(const rpi_compiler *compiler, const char *name, rpi_shape *shape) {
    const rpi_graph *graph = compiler->program->graph;
    for (int i = 0; i < shape->dims; i++) {
        int64_t number = 0;
        if (!rpi_dimension_bind(shape->size[i], compiler->dimensions, &number))
            return number < 0 ? RP_FAIL(INVALID, "'%s': dimension %d is too large", name, i)
                              : RP_FAIL(INVALID,
                                        "'%s' has a dimension '%s', which is not bound; "
                                        "options.dimensions gives it a size",
                                        name, rpi_graph_dimension_name(graph, (int)number));
        shape->size[i] = number;
    }
    return RP_OK;
}

static rp_status bind_leaves(rpi_compiler *compiler) {
    const rpi_program *program = compiler->program;
    for (int i = 0; i < compiler->value_count; i++) {
        const rpi_value *value = rpi_graph_value(program->graph, i);
        bool is_weight = value->kind == RPI_VALUE_PARAMETER || value->kind == RPI_VALUE_STATE;
        if (is_weight && compiler->values[i].needed)
            RP_TRY(rpi_weights_match(program->weights, program->graph, i,
                                     &compiler->values[i].weight));
        compiler->values[i].shape = value->shape;
        if (compiler->values[i].needed)
            RP_TRY(bind_shape(compiler, value->name, &compiler->values[i].shape));
    }
    return RP_OK;
}

/* Does the gradient of the loss, or a seed, arrive at any of these outputs? */
static bool is_reached(const rpi_compiler *compiler, const rpi_value_id *outputs, int count) {
    for (int i = 0; i < count; i++)
        if (compiler->values[outputs[i]].has_gradient) return true;
    return false;
}

/* The shapes that the graph inferred, as numbers, and the count of operations. */
static rp_status bind_node(rpi_compiler *compiler, int index) {
    const rpi_node *node = rpi_graph_node(compiler->program->graph, index);
    rpi_node_facts *facts = &compiler->program->node_facts[index];
    rpi_shape inputs[RPI_NODE_INPUTS], outputs[RPI_NODE_OUTPUTS] = {{0}};
    uint32_t wanted = 0;
    bool reached = is_reached(compiler, node->outputs, node->output_count);
    if (compiler->options->training && rpi_op_has_cache(node->op))
        return RP_FAIL(UNSUPPORTED,
                       "node '%s' (%s) goes on from a cache, and no gradient goes through it: "
                       "train the graph without caches",
                       node->name, node->op->name);
    for (int i = 0; i < node->input_count; i++) {
        const rpi_compiled_value *value = &compiler->values[node->inputs[i]];
        inputs[i] = value->shape;
        if (reached && value->has_gradient && node->op->inputs[i].has_gradient)
            wanted |= 1u << i;
    }
    for (int i = 0; i < node->output_count; i++) {
        const rpi_value *value = rpi_graph_value(compiler->program->graph, node->outputs[i]);
        outputs[i] = value->shape;
        RP_TRY(bind_shape(compiler, value->name, &outputs[i]));
        compiler->values[node->outputs[i]].shape = outputs[i];
        facts->output_bytes +=
            (size_t)rpi_shape_count(&outputs[i]) * rp_dtype_bytes(value->dtype);
    }
    if (node->op->check_bound) {
        rp_status status = node->op->check_bound(node->attributes, node->input_count, inputs);
        if (status != RP_OK)
            return rpi_fail_context(status, "node '%s' (%s): ", node->name, node->op->name);
    }
    if (node->op->flops)
        node->op->flops(node->attributes, inputs, outputs, wanted, &facts->forward_flops,
                        &facts->backward_flops);
    compiler->program->facts.forward_flops += facts->forward_flops;
    compiler->program->facts.backward_flops += facts->backward_flops;
    return RP_OK;
}

/* Goes from the loss and the results back: which nodes are needed, and which values the
 * gradient of the loss reaches (has_gradient, narrowed below to those that lead to a
 * parameter). */
static void mark_needed(rpi_compiler *compiler) {
    const rpi_graph *graph = compiler->program->graph;
    for (int i = rpi_graph_node_count(graph) - 1; i >= 0; i--) {
        const rpi_node *node = rpi_graph_node(graph, i);
        bool needed = false, reached = false;
        for (int j = 0; j < node->output_count; j++) {
            const rpi_compiled_value *output = &compiler->values[node->outputs[j]];
            needed |= output->needed && !output->is_given;
            reached |= output->has_gradient && !output->is_given;
        }
        compiler->node_needed[i] = needed;
        for (int j = 0; needed && j < node->input_count; j++) {
            rpi_compiled_value *input = &compiler->values[node->inputs[j]];
            input->needed = true;
            input->consumers++;
            input->has_gradient |= reached && node->op->inputs[j].has_gradient;
        }
    }
}

static void narrow_gradients(rpi_compiler *compiler) {
    const rpi_graph *graph = compiler->program->graph;
    for (int i = 0; i < compiler->value_count; i++) {
        rpi_value_kind kind = rpi_graph_value(graph, i)->kind;
        if (kind == RPI_VALUE_INPUT || kind == RPI_VALUE_STATE)
            compiler->values[i].has_gradient = false;
    }
    for (int i = 0; i < rpi_graph_node_count(graph); i++) {
        const rpi_node *node = rpi_graph_node(graph, i);
        bool leads = false;
        for (int j = 0; j < node->input_count; j++)
            leads |= node->op->inputs[j].has_gradient &&
                     compiler->values[node->inputs[j]].has_gradient;
        for (int j = 0; j < node->output_count; j++) {
            rpi_compiled_value *output = &compiler->values[node->outputs[j]];
            output->has_gradient &= leads || output->is_given;
        }
    }
}

/* Is the first axis that of samples? */
static bool has_samples(const rpi_graph *graph, const rpi_shape *shape) {
    for (int i = 0; shape->dims && i < rpi_graph_dimension_count(graph); i++)
        if (strcmp(rpi_graph_dimension_name(graph, i), "batch") == 0)
            return shape->size[0] == rpi_dimension_symbol(i);
    return false;
}

/* Is it the output of an external node that keeps nothing
 * (rpi_external_attributes.always_repeats)? */
static bool is_remade(const rpi_compiler *compiler, const rpi_value *value) {
    if (value->kind != RPI_VALUE_ACTIVATION || !compiler->options->training) return false;
    const rpi_node *node = rpi_graph_node(compiler->program->graph, value->producer);
    if (!rpi_is_external(node->op)) return false;
    return ((const rpi_external_attributes *)node->attributes)->always_repeats;
}

static void describe(const rpi_compiler *compiler, rpi_value_id id, rpi_unit_value *out) {
    const rpi_graph *graph = compiler->program->graph;
    const rpi_value *value = rpi_graph_value(graph, id);
    *out = (rpi_unit_value){.name = value->name,
                            .kind = value->kind,
                            .dtype = value->dtype,
                            .shape = compiler->values[id].shape,
                            .has_samples = has_samples(graph, &value->shape),
                            .is_remade = is_remade(compiler, value),
                            .parameter = -1,
                            .layout = rpi_row_major(compiler, id)};
    if (value->kind == RPI_VALUE_PARAMETER) out->parameter = compiler->values[id].weight->index;
}

static rp_status append_node(rpi_compiler *compiler, rpi_compiled_unit *compiled,
                             const rpi_node *node, int chain_input) {
    rpi_unit *unit = &compiled->unit;
    for (int i = 0; i < node->input_count; i++) {
        if (i == chain_input) continue;
        if (unit->input_count == RPI_UNIT_INPUTS)
            return RP_FAIL(INTERNAL, "node '%s': a fused unit has too many inputs", node->name);
        rpi_value_id id = node->inputs[i];
        compiled->inputs[unit->input_count] = id;
        describe(compiler, id, &unit->inputs[unit->input_count]);
        if (unit->inputs[unit->input_count].kind == RPI_VALUE_PARAMETER &&
            node->op->inputs[i].role == RPI_DATA) {
            unit->inputs[unit->input_count].kind = RPI_VALUE_ACTIVATION;
            unit->inputs[unit->input_count].parameter = -1;
        }
        if (compiler->values[id].has_gradient && node->op->inputs[i].has_gradient)
            unit->wanted |= 1u << unit->input_count;
        unit->input_count++;
    }
    unit->chain_input[unit->node_count] = chain_input;
    unit->nodes[unit->node_count++] = node;
    unit->output_count = node->output_count;
    for (int i = 0; i < node->output_count; i++) {
        compiled->outputs[i] = node->outputs[i];
        describe(compiler, node->outputs[i], &unit->outputs[i]);
    }
    return RP_OK;
}

static int input_index(const rpi_node *node, rpi_value_id value) {
    for (int i = 0; i < node->input_count; i++)
        if (node->inputs[i] == value) return i;
    return -1;
}

/* The only node that reads the unit's only output, or -1. */
static int sole_consumer(const rpi_compiler *compiler, const rpi_compiled_unit *compiled) {
    const rpi_graph *graph = compiler->program->graph;
    rpi_value_id output = compiled->outputs[0];
    const rpi_compiled_value *value = &compiler->values[output];
    if (compiled->unit.output_count != 1 || value->consumers != 1 || value->is_result)
        return -1;
    for (int i = rpi_graph_value(graph, output)->producer + 1; i < rpi_graph_node_count(graph);
         i++)
        if (compiler->node_needed[i] && input_index(rpi_graph_node(graph, i), output) >= 0)
            return i;
    return -1;
}

/* Fuses further nodes into the unit as long as the backend accepts them. taken[n]: node n is in
 * a unit. Returns the last node's index. */
static rp_status extend(rpi_compiler *compiler, rpi_compiled_unit *compiled, bool *taken,
                        int *in_out_last) {
    const rpi_program *program = compiler->program;
    while (program->backend->fuse && compiled->unit.node_count < RPI_UNIT_NODES) {
        int next = sole_consumer(compiler, compiled);
        if (next < 0 || taken[next]) return RP_OK;
        const rpi_node *node = rpi_graph_node(program->graph, next);
        bool fits = compiled->unit.input_count + node->input_count - 1 <= RPI_UNIT_INPUTS;
        if (!fits || node->op->is_view || rpi_is_external(node->op) ||
            !program->backend->fuse(compiler->kernels, &compiled->unit, node))
            return RP_OK;
        RP_TRY(append_node(compiler, compiled, node, input_index(node, compiled->outputs[0])));
        taken[next] = true;
        *in_out_last = next;
    }
    return RP_OK;
}

/* The readers of a seed are in the part that continues there. */
static void find_readers(const rpi_compiler *compiler, rpi_compiled_unit *compiled) {
    const rpi_graph *graph = compiler->program->graph;
    rpi_unit *unit = &compiled->unit;
    unit->reader_count = 0;
    const rpi_compiled_value *made = &compiler->values[compiled->outputs[0]];
    bool goes_on = made->is_seed && compiler->options->training;
    if (made->is_result && !goes_on) return;
    for (int i = 0; i < rpi_graph_node_count(graph); i++) {
        const rpi_node *node = rpi_graph_node(graph, i);
        if (input_index(node, compiled->outputs[0]) < 0) continue;
        if (!compiler->node_needed[i] && !goes_on) continue;
        if (unit->reader_count == RPI_UNIT_READERS) {
            unit->reader_count = 0;
            return;
        }
        unit->readers[unit->reader_count++] = node;
    }
}

/* What is computed beside the loss has no backward pass, though its inputs may have a gradient.
 */
static rp_status finish_unit(rpi_compiler *compiler, rpi_compiled_unit *compiled) {
    rpi_unit *unit = &compiled->unit;
    size_t bytes = 1;
    find_readers(compiler, compiled);
    if (!is_reached(compiler, compiled->outputs, unit->output_count)) unit->wanted = 0;
    for (int i = 0; i < unit->node_count; i++) bytes += strlen(unit->nodes[i]->op->name) + 1;
    char *what = NULL;
    RP_TRY(rpi_arena_alloc(compiler->program->memory, bytes, &what));
    size_t used = 0;
    for (int i = 0; i < unit->node_count; i++)
        used += (size_t)snprintf(what + used, bytes - used, "%s%s", i ? "+" : "",
                                 unit->nodes[i]->op->name);
    compiled->what = what;
    compiled->name = unit->nodes[0]->name;
    return RP_OK;
}

static rpi_compiled_unit empty_unit(const rpi_program_options *options) {
    return (rpi_compiled_unit){.unit.training = options->training,
                               .unit.compute = options->compute ? options->compute : RP_F32};
}

/* A unit runs in the place of its last node, when all inputs are there: units_at[last node]. */
static rp_status cut(rpi_compiler *compiler, bool *taken, rpi_compiled_unit *units_at) {
    const rpi_graph *graph = compiler->program->graph;
    for (int i = 0; i < rpi_graph_node_count(graph); i++) {
        const rpi_node *node = rpi_graph_node(graph, i);
        if (!compiler->node_needed[i] || taken[i]) continue;
        rpi_compiled_unit compiled = empty_unit(compiler->options);
        int last = i;
        RP_TRY(append_node(compiler, &compiled, node, -1));
        taken[i] = true;
        if (!node->op->is_view && !rpi_is_external(node->op))
            RP_TRY(extend(compiler, &compiled, taken, &last));
        RP_TRY(finish_unit(compiler, &compiled));
        units_at[last] = compiled;
    }
    for (int i = 0; i < rpi_graph_node_count(graph); i++)
        if (units_at[i].unit.node_count) units_at[compiler->unit_count++] = units_at[i];
    return RP_OK;
}

/* Splits it into one unit a node, because the backend has no kernel for the fused unit after
 * all. They run in its place, where all of their inputs are there. */
rp_status rpi_split_unit(rpi_compiler *compiler, int index) {
    rpi_compiled_unit fused = compiler->units[index];
    int more = fused.unit.node_count - 1;
    memmove(&compiler->units[index + 1 + more], &compiler->units[index + 1],
            (size_t)(compiler->unit_count - index - 1) * sizeof *compiler->units);
    compiler->unit_count += more;
    for (int i = 0; i <= more; i++) {
        rpi_compiled_unit *unit = &compiler->units[index + i];
        *unit = empty_unit(compiler->options);
        RP_TRY(append_node(compiler, unit, fused.unit.nodes[i], -1));
        RP_TRY(finish_unit(compiler, unit));
    }
    return RP_OK;
}

rp_status rpi_compile_units(rpi_compiler *compiler) {
    const rpi_graph *graph = compiler->program->graph;
    size_t nodes = (size_t)rpi_graph_node_count(graph);
    rpi_arena *memory = compiler->program->memory;
    bool *taken = NULL;
    RP_TRY(rpi_arena_alloc(memory, nodes * sizeof(bool), &compiler->node_needed));
    RP_TRY(rpi_arena_alloc(memory, nodes * sizeof(bool), &taken));
    RP_TRY(rpi_arena_alloc(memory, nodes * sizeof *compiler->units, &compiler->units));
    RP_TRY(rpi_arena_alloc(memory, nodes * sizeof *compiler->program->node_facts,
                           &compiler->program->node_facts));
    mark_needed(compiler);
    narrow_gradients(compiler);
    RP_TRY(read_bindings(compiler));
    RP_TRY(bind_leaves(compiler));
    for (int i = 0; i < (int)nodes; i++)
        if (compiler->node_needed[i]) RP_TRY(bind_node(compiler, i));
    return cut(compiler, taken, compiler->units);
}

/* ---- segments ---- */

static rp_status find_node(const rpi_graph *graph, const char *name, int *out_node) {
    for (int i = 0; i < rpi_graph_node_count(graph); i++) {
        if (!name || strcmp(rpi_graph_node(graph, i)->name, name) != 0) continue;
        *out_node = i;
        return RP_OK;
    }
    return RP_FAIL(INVALID, "options.recompute: the graph has no node '%s'", name ? name : "");
}

/* A fused unit belongs to the segment of its last node. */
static rp_status mark_segment(rpi_compiler *compiler, int index) {
    const rpi_graph *graph = compiler->program->graph;
    const rpi_segment *segment = &compiler->options->recompute[index];
    int first = 0, last = 0;
    RP_TRY(find_node(graph, segment->first, &first));
    RP_TRY(find_node(graph, segment->last, &last));
    if (last < first)
        return RP_FAIL(INVALID, "options.recompute: '%s' stands behind '%s'", segment->first,
                       segment->last);
    for (int i = 0; i < compiler->unit_count; i++) {
        rpi_compiled_unit *unit = &compiler->units[i];
        int node = rpi_graph_value(graph, unit->outputs[0])->producer;
        if (node >= first && node <= last && unit->segment < 0) unit->segment = index;
    }
    return RP_OK;
}

rp_status rpi_find_segments(rpi_compiler *compiler) {
    for (int i = 0; i < compiler->unit_count; i++) compiler->units[i].segment = -1;
    for (int i = 0; i < compiler->options->recompute_count; i++)
        RP_TRY(mark_segment(compiler, i));
    return RP_OK;
}
