/* Compiles a graph to a program: forward and backward passes as steps over places. */
#include "engine/compile.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

enum { BLOCK_BYTES = 65536 };

/* ---- kernels ---- */

/* The defaults that a backend finds in a kernel before it plans: the op's contract for one
 * node, and the safe choice for a fused unit (backend.h). */
static void default_kernel(const rpi_unit *unit, rpi_kernel *kernel) {
    const rpi_node *node = unit->nodes[0];
    const rpi_op *op = node->op;
    bool single = unit->node_count == 1;
    rpi_shape inputs[RPI_UNIT_INPUTS], outputs[RPI_UNIT_OUTPUTS];
    for (int i = 0; i < unit->input_count; i++) {
        inputs[i] = unit->inputs[i].shape;
        kernel->inputs[i] = kernel->grad_inputs[i] = unit->inputs[i].layout;
        kernel->gradient_from[i] = single ? op->gradient_from : RPI_GRADIENT_WRITTEN;
    }
    for (int i = 0; i < unit->output_count; i++) {
        outputs[i] = unit->outputs[i].shape;
        kernel->outputs[i] = kernel->grad_outputs[i] = unit->outputs[i].layout;
    }
    kernel->in_place_forward = single && op->in_place_forward ? 0 : -1;
    kernel->in_place_backward = single && op->in_place_backward ? 0 : -1;
    if (!single) return;
    kernel->needs_inputs = op->needs_inputs;
    kernel->needs_outputs = op->needs_outputs;
    if (op->saved_bytes)
        kernel->saved_bytes = op->saved_bytes(node->attributes, inputs, outputs);
}

uint32_t rpi_written(const rpi_compiled_unit *unit, bool weights) {
    uint32_t mask = 0;
    for (int i = 0; i < unit->unit.input_count; i++)
        if ((unit->unit.inputs[i].kind == RPI_VALUE_PARAMETER) == weights &&
            unit->kernel->gradient_from[i] == RPI_GRADIENT_WRITTEN)
            mask |= 1u << i;
    return mask & unit->unit.wanted;
}

static rp_status check_kernel(const rpi_compiler *compiler, const rpi_compiled_unit *unit) {
    const char *backend = compiler->program->backend->name;
    const rpi_kernel *kernel = unit->kernel;
    uint32_t inputs = rpi_written(unit, false), weights = rpi_written(unit, true);
    for (int i = 0; i < unit->unit.input_count; i++) {
        rpi_value_kind kind = unit->unit.inputs[i].kind;
        bool movable = kind == RPI_VALUE_ACTIVATION || kind == RPI_VALUE_INPUT;
        if (!movable && (kernel->inputs[i].id != 0 || kernel->grad_inputs[i].id != 0))
            return RP_FAIL(INTERNAL, "backend %s wants '%s' in a layout of its own", backend,
                           unit->unit.inputs[i].name);
        int from = kernel->gradient_from[i];
        if (!(unit->unit.wanted >> i & 1u)) continue;
        if (from >= 0 && !(unit->unit.wanted >> from & 1u))
            return RP_FAIL(INTERNAL, "backend %s: gradient %d is that of %d, not wanted",
                           backend, i, from);
    }
    bool lacks_inputs = inputs && !kernel->backward_inputs;
    bool lacks_weights = weights && !kernel->backward_weights && !kernel->backward_inputs;
    if (!kernel->forward || lacks_inputs || lacks_weights)
        return RP_FAIL(INTERNAL, "backend %s gave no kernel", backend);
    return RP_OK;
}

static rp_status plan_kernel(rpi_compiler *compiler, rpi_compiled_unit *unit) {
    rpi_program *program = compiler->program;
    for (int i = 0; i < unit->unit.input_count; i++)
        unit->unit.inputs[i].layout = compiler->values[unit->inputs[i]].place.layout;
    if (unit->unit.node_count == 1 && !program->backend->supports(&unit->unit))
        return RP_FAIL(UNSUPPORTED, "backend %s has no such kernel", program->backend->name);
    RP_TRY(rpi_emit_kernel(compiler, &unit->kernel));
    default_kernel(&unit->unit, unit->kernel);
    rp_status status = program->backend->plan(compiler->kernels, &unit->unit, unit->kernel);
    if (status != RP_OK) {
        unit->kernel->destroy = NULL; /* a plan that fails leaves nothing to destroy */
        return status;
    }
    return check_kernel(compiler, unit);
}

static rp_status emit_saved(rpi_compiler *compiler, rpi_compiled_unit *unit) {
    size_t bytes = unit->kernel->saved_bytes;
    if (!unit->unit.wanted || !bytes) return RP_OK;
    return rpi_emit_buffer(compiler, bytes, (rpi_layout){.bytes = bytes}, &unit->saved);
}

/* ---- forward ---- */

static rp_status emit_view(rpi_compiler *compiler, const rpi_compiled_unit *unit,
                           rpi_pass pass) {
    rpi_value_id in = unit->inputs[0];
    return rpi_emit_use(compiler, in, rpi_row_major(compiler, in), pass,
                        &compiler->values[unit->outputs[0]].place);
}

static rp_status run_forward_kernel(rpi_compiler *compiler, rpi_compiled_unit *unit,
                                    rpi_pass pass) {
    const rpi_kernel *kernel = unit->kernel;
    rpi_step_places places = {0};
    for (int i = 0; i < unit->unit.input_count; i++)
        RP_TRY(rpi_emit_use(compiler, unit->inputs[i], kernel->inputs[i], pass,
                            &places.inputs[i]));
    for (int i = 0; i < unit->unit.output_count; i++) {
        RP_TRY(rpi_emit_buffer(compiler, kernel->outputs[i].bytes, kernel->outputs[i],
                               &places.outputs[i]));
        compiler->values[unit->outputs[i]].place = places.outputs[i];
    }
    RP_TRY(emit_saved(compiler, unit));
    places.workspace = rpi_emit_workspace(compiler, kernel->forward_workspace);
    places.saved = unit->saved;
    rpi_program_step step = {.run = kernel->forward,
                             .self = kernel->self,
                             .name = unit->name,
                             .what = unit->what,
                             .repeats = pass == RPI_BACKWARD,
                             .pass = pass};
    if (unit->unit.outputs[0].dtype == RP_F32) {
        step.dtype = kernel->outputs[0].dtype ? kernel->outputs[0].dtype : RP_F32;
        step.floats = (int64_t)(kernel->outputs[0].bytes / rp_dtype_bytes(step.dtype));
    }
    RP_TRY(rpi_emit_step(compiler, &step, &places));
    if (kernel->in_place_forward < 0) return RP_OK;
    return rpi_emit_reuse(compiler, places.outputs[0], places.inputs[kernel->in_place_forward]);
}

static rp_status emit_forward_kernel(rpi_compiler *compiler, rpi_compiled_unit *unit) {
    RP_TRY(plan_kernel(compiler, unit));
    return run_forward_kernel(compiler, unit, RPI_FORWARD);
}

static rp_status emit_forward(rpi_compiler *compiler, rpi_compiled_unit *unit) {
    const rpi_op *op = unit->unit.nodes[0]->op;
    if (op->is_view) return emit_view(compiler, unit, RPI_FORWARD);
    if (rpi_is_external(op)) return rpi_emit_external_forward(compiler, unit, RPI_FORWARD);
    return emit_forward_kernel(compiler, unit);
}

/* The loss and the results, row-major, which are kept to the end of the run. */
static rp_status emit_results(rpi_compiler *compiler) {
    rpi_program *program = compiler->program;
    for (int i = 0; i < program->result_count; i++) {
        rpi_value_id value = program->results[i].value;
        RP_TRY(rpi_emit_use(compiler, value, rpi_row_major(compiler, value), RPI_FORWARD,
                            &compiler->results[i]));
    }
    return RP_OK;
}

/* ---- backward ---- */

static rp_status place_backward_reads(rpi_compiler *compiler, const rpi_compiled_unit *unit,
                                      rpi_step_places *places) {
    const rpi_kernel *kernel = unit->kernel;
    for (int i = 0; i < unit->unit.input_count; i++) {
        rpi_value_kind kind = unit->unit.inputs[i].kind;
        bool weight = kind == RPI_VALUE_PARAMETER || kind == RPI_VALUE_STATE;
        if (weight || kernel->needs_inputs >> i & 1u)
            RP_TRY(rpi_emit_use(compiler, unit->inputs[i], kernel->inputs[i], RPI_BACKWARD,
                                &places->inputs[i]));
    }
    for (int i = 0; i < unit->unit.output_count; i++) {
        rpi_value_id id = unit->outputs[i];
        if (kernel->needs_outputs >> i & 1u) places->outputs[i] = compiler->values[id].place;
        if (compiler->values[id].gradient.kind != RPI_NOWHERE)
            RP_TRY(rpi_emit_use_gradient(compiler, id, kernel->grad_outputs[i],
                                         &places->grad_outputs[i]));
    }
    places->saved = unit->saved;
    places->workspace = rpi_emit_workspace(compiler, kernel->backward_workspace);
    return RP_OK;
}

/* Is the gradient that the kernel writes for this input also that of another input? */
static bool is_shared(const rpi_compiled_unit *unit, int input) {
    for (int i = 0; i < unit->unit.input_count; i++)
        if (unit->unit.wanted >> i & 1u && unit->kernel->gradient_from[i] == input) return true;
    return false;
}

/* Places it in a buffer of its own, or in the one that an earlier consumer has begun. */
static rp_status place_activation_gradient(rpi_compiler *compiler,
                                           const rpi_compiled_unit *unit, int input,
                                           rpi_program_step *step, rpi_step_places *places) {
    const rpi_kernel *kernel = unit->kernel;
    rpi_compiled_value *value = &compiler->values[unit->inputs[input]];
    bool begun = value->owns_gradient && value->gradient.kind == RPI_IN_BUFFER &&
                 value->gradient.layout.id == kernel->grad_inputs[input].id;
    if (!begun || !(kernel->accumulates >> input & 1u) || is_shared(unit, input))
        return rpi_emit_buffer(compiler, kernel->grad_inputs[input].bytes,
                               kernel->grad_inputs[input], &places->grad_inputs[input]);
    RP_TRY(rpi_emit_finish(compiler, &value->gradient_pending));
    places->grad_inputs[input] = value->gradient;
    step->always_add |= 1u << input;
    return RP_OK;
}

/* Places what the kernel writes: activations' gradients in buffers, parameters' in the arena.
 */
static rp_status place_backward_writes(rpi_compiler *compiler, const rpi_compiled_unit *unit,
                                       uint32_t written, rpi_program_step *step,
                                       rpi_step_places *places) {
    for (int i = 0; i < unit->unit.input_count; i++) {
        if (!(written >> i & 1u)) continue;
        rpi_value_id id = unit->inputs[i];
        if (unit->unit.inputs[i].kind != RPI_VALUE_PARAMETER) {
            RP_TRY(place_activation_gradient(compiler, unit, i, step, places));
            continue;
        }
        rpi_compiled_value *parameter = &compiler->values[id];
        if (parameter->writes > 0 && parameter->last_write == compiler->program->step_count)
            return RP_FAIL(UNSUPPORTED, "'%s' is more than one of its inputs",
                           unit->unit.inputs[i].name);
        places->grad_inputs[i] = (rpi_value_place){.kind = RPI_IN_GRADIENT, .index = id};
        step->written_gradients |= 1u << i;
        if (parameter->writes > 0) step->always_add |= 1u << i;
        parameter->writes++;
        parameter->last_write = compiler->program->step_count;
    }
    return RP_OK;
}

static rp_status hand_on_gradients(rpi_compiler *compiler, const rpi_compiled_unit *unit,
                                   const rpi_step_places *places) {
    for (int i = 0; i < unit->unit.input_count; i++) {
        if (!(unit->unit.wanted >> i & 1u)) continue;
        int from = unit->kernel->gradient_from[i];
        if (from == RPI_GRADIENT_WRITTEN && unit->unit.inputs[i].kind == RPI_VALUE_PARAMETER)
            continue; /* it is in its place already, or will be */
        rpi_value_place place = from == RPI_GRADIENT_OF_OUTPUT
                                    ? places->grad_outputs[0]
                                    : places->grad_inputs[from < 0 ? i : from];
        rpi_compiled_value *value = &compiler->values[unit->inputs[i]];
        bool is_first = value->gradient.kind == RPI_NOWHERE;
        bool is_added = from == RPI_GRADIENT_WRITTEN && value->gradient.kind == RPI_IN_BUFFER &&
                        value->gradient.index == place.index;
        if (place.kind != RPI_IN_GRADIENT && !is_added)
            RP_TRY(rpi_emit_gradient(compiler, unit->inputs[i], place));
        if (is_first)
            value->owns_gradient = from == RPI_GRADIENT_WRITTEN && !is_shared(unit, i);
    }
    return RP_OK;
}

/* One call of a kernel's backward, which writes the gradients in `written`. */
static rp_status emit_half(rpi_compiler *compiler, rpi_compiled_unit *unit,
                           rpi_step_function run, uint32_t written, rpi_step_places *places) {
    const rpi_kernel *kernel = unit->kernel;
    rpi_program_step step = {.run = run,
                             .self = kernel->self,
                             .name = unit->name,
                             .what = unit->what,
                             .pass = RPI_BACKWARD};
    RP_TRY(place_backward_reads(compiler, unit, places));
    RP_TRY(place_backward_writes(compiler, unit, written, &step, places));
    RP_TRY(rpi_emit_step(compiler, &step, places));
    if (kernel->in_place_backward < 0) return RP_OK;
    return rpi_emit_reuse(compiler, places->grad_inputs[kernel->in_place_backward],
                          places->grad_outputs[0]);
}

static bool passes_gradient(const rpi_compiled_unit *unit) {
    for (int i = 0; i < unit->unit.input_count; i++)
        if (unit->unit.wanted >> i & 1u &&
            unit->kernel->gradient_from[i] == RPI_GRADIENT_OF_OUTPUT)
            return true;
    return false;
}

/* The first half, which makes the gradients of activations, or all of backward if the kernel
 * has one call. */
static rp_status emit_backward_inputs(rpi_compiler *compiler, rpi_compiled_unit *unit) {
    const rpi_kernel *kernel = unit->kernel;
    rpi_step_places places = {0};
    uint32_t written = rpi_written(unit, false);
    if (!kernel->backward_weights) written |= rpi_written(unit, true);
    if (written)
        RP_TRY(emit_half(compiler, unit, kernel->backward_inputs, written, &places));
    else if (passes_gradient(unit))
        RP_TRY(rpi_emit_use_gradient(compiler, unit->outputs[0], kernel->grad_outputs[0],
                                     &places.grad_outputs[0]));
    return hand_on_gradients(compiler, unit, &places);
}

static rp_status emit_backward_weights(rpi_compiler *compiler, rpi_compiled_unit *unit) {
    rpi_step_places places = {0};
    uint32_t written = rpi_written(unit, true);
    return emit_half(compiler, unit, unit->kernel->backward_weights, written, &places);
}

static rp_status emit_backward(rpi_compiler *compiler, rpi_compiled_unit *unit) {
    const rpi_op *op = unit->unit.nodes[0]->op;
    if (!unit->unit.wanted) return RP_OK;
    if (rpi_is_external(op)) return rpi_emit_external_backward(compiler, unit);
    if (!op->is_view) return emit_backward_inputs(compiler, unit);
    rpi_value_place place;
    rpi_value_id out = unit->outputs[0];
    RP_TRY(rpi_emit_use_gradient(compiler, out, rpi_row_major(compiler, out), &place));
    return rpi_emit_gradient(compiler, unit->inputs[0], place);
}

/* ---- what the caller gives and takes in the middle of a graph ---- */

/* The gradients that the caller passes to the backward pass. */
static void place_seeds(rpi_compiler *compiler) {
    const rpi_program_options *options = compiler->options;
    int first =
        rpi_graph_kind_count(compiler->program->graph, RPI_VALUE_INPUT) + options->given_count;
    for (int i = 0; i < options->seed_count; i++) {
        rpi_value_id id = options->seeds[i];
        compiler->values[id].gradient =
            (rpi_value_place){RPI_IN_INPUT, first + i, rpi_row_major(compiler, id)};
    }
}

/* Is this unit the first consumer of the value, so that its backward pass is the last? */
static bool is_first_consumer(const rpi_compiler *compiler, int index, rpi_value_id value) {
    for (int i = 0; i <= index; i++)
        for (int j = 0; j < compiler->units[i].unit.input_count; j++)
            if (compiler->units[i].inputs[j] == value) return i == index;
    return false;
}

static rp_dtype dtype_of(const rpi_value_place *place) {
    return place->layout.dtype == RP_BF16 ? RP_BF16 : RP_F32;
}

/* After the backward pass of a unit: reports the gradients of given values that are then
 * complete. */
static rp_status emit_given_gradients(rpi_compiler *compiler, int index) {
    rpi_program *program = compiler->program;
    for (int i = 0; i < program->given_count; i++) {
        rpi_value_id id = compiler->options->given[i];
        if (compiler->values[id].gradient.kind == RPI_NOWHERE ||
            !is_first_consumer(compiler, index, id))
            continue;
        program->given_gradients[i] = dtype_of(&compiler->values[id].gradient);
        RP_TRY(rpi_emit_use_gradient(compiler, id, rpi_row_major(compiler, id),
                                     &compiler->given_gradients[i]));
        program->given[i].step = program->step_count - 1;
    }
    return RP_OK;
}

/* ---- passes ---- */

static rp_status in_unit(rp_status status, const rpi_compiled_unit *unit) {
    if (status == RP_OK) return RP_OK;
    return rpi_fail_context(status, "node '%s' (%s): ", unit->name, unit->what);
}

static rp_status emit_unit(rpi_compiler *compiler, int index) {
    rpi_compiled_unit *unit = &compiler->units[index];
    rp_status status = emit_forward(compiler, unit);
    if (status == RP_UNSUPPORTED && unit->unit.node_count > 1) {
        RP_TRY(in_unit(rpi_split_unit(compiler, index), unit));
        status = emit_forward(compiler, unit);
    }
    return in_unit(status, unit);
}

/* ---- recomputation ---- */

static bool takes(const rpi_compiled_unit *unit, int input, const rpi_compiled_unit *maker) {
    for (int i = 0; i < maker->unit.output_count; i++)
        if (unit->inputs[input] == maker->outputs[i]) return true;
    return false;
}

/* Does backward need the outputs of this unit? Either its own backward, or units after it in
 * its segment, of which `again` says which are recomputed. External nodes say whether they may
 * be recomputed; otherwise their outputs are kept. */
static bool needs_repeat(const rpi_compiler *compiler, int index, const bool *again) {
    const rpi_compiled_unit *unit = &compiler->units[index];
    if (rpi_is_external(unit->unit.nodes[0]->op) && !rpi_external_repeats(unit)) return false;
    const rpi_kernel *own = unit->kernel;
    if (own && unit->unit.wanted && (own->saved_bytes || own->needs_outputs)) return true;
    for (int i = index + 1; i < compiler->unit_count; i++) {
        const rpi_compiled_unit *next = &compiler->units[i];
        if (next->segment != unit->segment) continue;
        for (int j = 0; j < next->unit.input_count; j++) {
            bool reads =
                next->kernel && next->unit.wanted && next->kernel->needs_inputs >> j & 1u;
            if ((again[i] || reads) && takes(next, j, unit)) return true;
        }
    }
    return false;
}

/* The values of a unit are recomputed into places of their own; those of the forward pass are
 * then free from its end on. */
static rp_status repeat_unit(rpi_compiler *compiler, rpi_compiled_unit *unit) {
    const rpi_op *op = unit->unit.nodes[0]->op;
    for (int i = 0; i < unit->unit.output_count; i++)
        compiler->values[unit->outputs[i]].copies = NULL;
    if (rpi_is_external(op)) return rpi_emit_external_forward(compiler, unit, RPI_BACKWARD);
    if (op->is_view) return emit_view(compiler, unit, RPI_BACKWARD);
    return run_forward_kernel(compiler, unit, RPI_BACKWARD);
}

static rp_status repeat_segment(rpi_compiler *compiler, int segment, bool *repeated) {
    bool *again = NULL;
    if (segment < 0 || repeated[segment]) return RP_OK;
    repeated[segment] = true;
    RP_TRY(rpi_arena_alloc(compiler->program->memory, (size_t)compiler->unit_count, &again));
    for (int i = compiler->unit_count - 1; i >= 0; i--)
        again[i] = compiler->units[i].segment == segment && needs_repeat(compiler, i, again);
    for (int i = 0; i < compiler->unit_count; i++) {
        if (!again[i]) continue;
        compiler->units[i].is_repeated = true;
        RP_TRY(in_unit(repeat_unit(compiler, &compiler->units[i]), &compiler->units[i]));
    }
    return RP_OK;
}

/* Recomputes what external nodes did not keep and the unit's backward reads. */
static rp_status repeat_inputs(rpi_compiler *compiler, int index) {
    const rpi_compiled_unit *unit = &compiler->units[index];
    if (!unit->kernel || !unit->unit.wanted) return RP_OK;
    for (int i = index - 1; i >= 0; i--) {
        rpi_compiled_unit *maker = &compiler->units[i];
        bool reads = false;
        if (maker->is_repeated || !rpi_external_always_repeats(maker)) continue;
        for (int j = 0; j < unit->unit.input_count; j++)
            reads |= (unit->kernel->needs_inputs >> j & 1u) && takes(unit, j, maker);
        if (!reads) continue;
        maker->is_repeated = true;
        RP_TRY(in_unit(repeat_unit(compiler, maker), maker));
    }
    return RP_OK;
}

/* Recomputation begins so many units ahead of use, to overlap with their backward passes; but
 * not beyond segments that are recomputed. */
enum { REPEATED_AHEAD = 3 };

static rp_status repeat_ahead(rpi_compiler *compiler, int index) {
    int segment = compiler->units[index].segment;
    for (int i = index; i >= 0 && i >= index - REPEATED_AHEAD; i--)
        if (compiler->units[i].segment == segment) RP_TRY(repeat_inputs(compiler, i));
    return RP_OK;
}

/* Does its backward pass have a second call? */
static bool has_second_half(const rpi_compiled_unit *unit) {
    return unit->kernel && unit->kernel->backward_weights && rpi_written(unit, true);
}

/* Emits second halves that wait, in order: units [*from, to) of `waiting`. */
static rp_status emit_second_halves(rpi_compiler *compiler, const int *waiting, int *from,
                                    int to) {
    for (; *from < to; ++*from) {
        rpi_compiled_unit *unit = &compiler->units[waiting[*from]];
        RP_TRY(in_unit(emit_backward_weights(compiler, unit), unit));
    }
    return RP_OK;
}

/* Is the input of both units the output of an external node, which sends its gradient? That
 * gradient is complete only when both have added to it. */
static bool share_sent_gradient(const rpi_compiler *compiler, const rpi_compiled_unit *a,
                                const rpi_compiled_unit *b) {
    const rpi_graph *graph = compiler->program->graph;
    for (int i = 0; i < a->unit.input_count; i++) {
        const rpi_value *value = rpi_graph_value(graph, a->inputs[i]);
        if (value->kind != RPI_VALUE_ACTIVATION) continue;
        const rpi_node *maker = rpi_graph_node(graph, value->producer);
        if (!rpi_is_external(maker->op) || !rpi_external_sends(maker)) continue;
        for (int j = 0; j < b->unit.input_count; j++)
            if (b->inputs[j] == a->inputs[i]) return true;
    }
    return false;
}

/* A second half follows its first, with two exceptions. If the caller runs the halves
 * separately, all second halves come last. And the gradient that an external node sends is sent
 * before its unit's second half, and before those of all units that contribute to it. */
static rp_status emit_backward_pass(rpi_compiler *compiler) {
    rpi_program *program = compiler->program;
    bool apart = compiler->options->halves_apart;
    int *waiting = NULL, first = 0, count = 0;
    bool *repeated = NULL; /* segments of options.recompute */
    RP_TRY(rpi_arena_alloc(program->memory,
                           (size_t)compiler->options->recompute_count * sizeof *repeated,
                           &repeated));
    RP_TRY(rpi_find_segments(compiler));
    RP_TRY(rpi_arena_alloc(program->memory, (size_t)compiler->unit_count * sizeof *waiting,
                           &waiting));
    for (int i = compiler->unit_count - 1; i >= 0; i--) {
        rpi_compiled_unit *unit = &compiler->units[i];
        bool sends =
            rpi_is_external(unit->unit.nodes[0]->op) ||
            (count > first &&
             share_sent_gradient(compiler, unit, &compiler->units[waiting[count - 1]]));
        if (!apart && !sends) RP_TRY(emit_second_halves(compiler, waiting, &first, count));
        RP_TRY(repeat_segment(compiler, unit->segment, repeated));
        RP_TRY(repeat_ahead(compiler, i));
        RP_TRY(in_unit(emit_backward(compiler, unit), unit));
        if (unit->unit.wanted && has_second_half(unit)) waiting[count++] = i;
        RP_TRY(emit_given_gradients(compiler, i));
    }
    if (!apart) RP_TRY(emit_second_halves(compiler, waiting, &first, count));
    for (int i = 0; i < compiler->value_count; i++) {
        RP_TRY(rpi_emit_finish(compiler, &compiler->values[i].pending));
        RP_TRY(rpi_emit_finish(compiler, &compiler->values[i].gradient_pending));
    }
    program->inputs_end = program->step_count;
    return emit_second_halves(compiler, waiting, &first, count);
}

/* A given value that has another dtype in the whole graph has that dtype here. */
static rp_status place_given(rpi_compiler *compiler) {
    const rpi_program_options *options = compiler->options;
    const rpi_backend *backend = compiler->program->backend;
    for (int i = 0; i < options->given_count && backend->handed_on; i++) {
        rpi_value_id id = options->given[i];
        if (options->given_dtypes[i] != RP_BF16) continue;
        rpi_layout layout =
            backend->handed_on(compiler->kernels, &compiler->values[id].shape, RP_BF16);
        if (layout.dtype != RP_BF16) continue;
        RP_TRY(rpi_emit_use(compiler, id, layout, RPI_FORWARD, &compiler->values[id].place));
    }
    return RP_OK;
}

/* Notes where seeds lie when all forward steps have been emitted. */
static void note_seeds(rpi_compiler *compiler) {
    const rpi_program_options *options = compiler->options;
    for (int i = 0; i < options->seed_count; i++)
        compiler->program->seed_values[i] =
            dtype_of(&compiler->values[options->seeds[i]].place);
}

static rp_status emit_passes(rpi_compiler *compiler) {
    RP_TRY(place_given(compiler));
    for (int i = 0; i < compiler->unit_count; i++) RP_TRY(emit_unit(compiler, i));
    RP_TRY(emit_results(compiler));
    for (int i = 0; i < compiler->value_count; i++)
        RP_TRY(rpi_emit_finish(compiler, &compiler->values[i].pending));
    note_seeds(compiler);
    compiler->program->forward_count = compiler->program->step_count;
    if (!compiler->options->training) return RP_OK;
    if (compiler->loss != RPI_NO_VALUE)
        compiler->values[compiler->loss].gradient =
            (rpi_value_place){RPI_IN_ONE, 0, rpi_row_major(compiler, compiler->loss)};
    place_seeds(compiler);
    return emit_backward_pass(compiler);
}

/* ---- finality ---- */

/* The model's parameters in this graph, by their index in the weights; RPI_NO_VALUE: the
 * parameter is not in the graph, or not in this part of it. */
static rp_status list_parameters(rpi_compiler *compiler, rpi_value_id **out_values) {
    const rpi_program *program = compiler->program;
    int count = rpi_weights_parameter_count(program->weights);
    bool is_part = compiler->options->given_count > 0 || compiler->loss == RPI_NO_VALUE;
    RP_TRY(rpi_arena_alloc(program->memory, (size_t)count * sizeof **out_values, out_values));
    for (int i = 0; i < count; i++) (*out_values)[i] = RPI_NO_VALUE;
    for (int i = 0; i < compiler->value_count; i++) {
        const rpi_value *value = rpi_graph_value(program->graph, i);
        if (value->kind != RPI_VALUE_PARAMETER) continue;
        if (is_part && !compiler->values[i].writes) continue;
        const rpi_weight *weight = rpi_weights_find(program->weights, value->name);
        if (weight && !weight->is_state) (*out_values)[weight->index] = i;
    }
    return RP_OK;
}

/* Appends a range, or extends the one before if the two are contiguous; returns the number of
 * ranges. */
static int add_final(rpi_final_range *finals, int count, int step, const rpi_weight *weight) {
    const rpi_final_range *last =
        &finals[count - (count > 0)]; /* the first if there is none yet */
    bool goes_on = last->step == step && last->first + last->count == weight->first;
    if (count > 0 && goes_on) {
        finals[count - 1].count += weight->count;
        return count;
    }
    finals[count] = (rpi_final_range){step, weight->first, weight->count};
    return count + 1;
}

/* Notes after which steps which parts of the arena are final. A part is reported after those
 * before it. A parameter that no gradient reaches is reported with the one before it. */
static rp_status mark_final(rpi_compiler *compiler) {
    rpi_program *program = compiler->program;
    int count = rpi_weights_parameter_count(program->weights);
    int latest = program->forward_count - 1;
    rpi_value_id *values = NULL;
    rpi_final_range *finals = NULL;
    RP_TRY(list_parameters(compiler, &values));
    RP_TRY(rpi_arena_alloc(program->memory, (size_t)count * sizeof *program->unreached,
                           &program->unreached));
    RP_TRY(rpi_arena_alloc(program->memory, (size_t)count * sizeof *finals, &finals));
    program->finals = finals;
    for (int i = 0; i < count; i++) {
        if (values[i] == RPI_NO_VALUE) continue;
        const rpi_compiled_value *value = &compiler->values[values[i]];
        if (!value->writes)
            program->unreached[program->unreached_count++] = i;
        else if (value->last_write > latest)
            latest = value->last_write;
        program->final_count = add_final(finals, program->final_count, latest,
                                         rpi_weights_parameter(program->weights, i));
    }
    return RP_OK;
}

/* ---- the whole ---- */

static rp_status check_activation(const rpi_compiler *compiler, const char *what,
                                  rpi_value_id id) {
    const rpi_graph *graph = compiler->program->graph;
    if (id >= 0 && id < compiler->value_count &&
        rpi_graph_value(graph, id)->kind == RPI_VALUE_ACTIVATION)
        return RP_OK;
    return RP_FAIL(INVALID, "%s (value %d) is no activation of the graph", what, id);
}

/* The places where the caller cuts the graph: values that are given instead of computed, and
 * values whose gradients are given. */
static rp_status add_cuts(rpi_compiler *compiler) {
    const rpi_program_options *options = compiler->options;
    rpi_program *program = compiler->program;
    for (int i = 0; i < options->given_count; i++) {
        RP_TRY(check_activation(compiler, "a given value", options->given[i]));
        compiler->values[options->given[i]].is_given = true;
        compiler->values[options->given[i]].needed = true;
        program->given[program->given_count++].value = options->given[i];
    }
    for (int i = 0; i < options->seed_count; i++) {
        RP_TRY(check_activation(compiler, "a seed", options->seeds[i]));
        rpi_compiled_value *value = &compiler->values[options->seeds[i]];
        if (value->is_given || options->seeds[i] == compiler->loss)
            return RP_FAIL(INVALID, "a seed (value %d) is the loss or a given value",
                           options->seeds[i]);
        value->needed = value->is_result = value->is_seed = true;
        value->has_gradient = options->training;
        program->seeds[program->seed_count++] = options->seeds[i];
    }
    return RP_OK;
}

static rp_status add_result(rpi_compiler *compiler, rpi_value_id id) {
    rpi_program *program = compiler->program;
    RP_TRY(check_activation(compiler, "a result", id));
    compiler->values[id].needed = compiler->values[id].is_result = true;
    program->results[program->result_count++].value = id;
    return RP_OK;
}

static rp_status check_cut(const char *what, int count) {
    if (count >= 0 && count <= RPI_PROGRAM_CUTS) return RP_OK;
    return RP_FAIL(INVALID, "%d %s; at most %d are allowed", count, what, RPI_PROGRAM_CUTS);
}

static rp_status check_request(const rpi_compiler *compiler) {
    const rpi_program *program = compiler->program;
    if (compiler->options->result_count < 0 ||
        compiler->options->result_count > RPI_PROGRAM_RESULTS)
        return RP_FAIL(INVALID, "%d results; at most %d are allowed",
                       compiler->options->result_count, RPI_PROGRAM_RESULTS);
    RP_TRY(check_cut("given values", compiler->options->given_count));
    RP_TRY(check_cut("seeds", compiler->options->seed_count));
    if (compiler->loss == RPI_NO_VALUE)
        return compiler->options->training && !compiler->options->seed_count
                   ? RP_FAIL(INVALID, "training without a loss or a seed")
                   : RP_OK;
    if (compiler->loss < 0 || compiler->loss >= compiler->value_count)
        return RP_FAIL(INVALID, "the loss is no value of the graph");
    const rpi_value *loss = rpi_graph_value(program->graph, compiler->loss);
    if (loss->dtype != RP_F32 || loss->shape.dims != 0)
        return RP_FAIL(INVALID, "the loss '%s' is no scalar of f32", loss->name);
    return RP_OK;
}

static void place_leaves(rpi_compiler *compiler) {
    static const rpi_value_place_kind places[] = {RPI_IN_INPUT, RPI_IN_WEIGHTS, RPI_IN_WEIGHTS,
                                                  RPI_NOWHERE};
    for (int i = 0; i < compiler->value_count; i++) {
        const rpi_value *value = rpi_graph_value(compiler->program->graph, i);
        /* an unneeded value's dimensions may have no size */
        if (!compiler->values[i].needed) continue;
        int index = value->kind == RPI_VALUE_INPUT ? value->index : i;
        compiler->values[i].place =
            (rpi_value_place){places[value->kind], index, rpi_row_major(compiler, i)};
    }
    int first = rpi_graph_kind_count(compiler->program->graph, RPI_VALUE_INPUT);
    for (int i = 0; i < compiler->options->given_count; i++) {
        rpi_value_id id = compiler->options->given[i];
        compiler->values[id].place =
            (rpi_value_place){RPI_IN_INPUT, first + i, rpi_row_major(compiler, id)};
    }
}

static void describe_result(const rpi_compiler *compiler, rpi_program_result *result) {
    const rpi_value *value = rpi_graph_value(compiler->program->graph, result->value);
    result->tensor = (rpi_tensor){.dtype = value->dtype,
                                  .domain = RPI_HOST,
                                  .shape = compiler->values[result->value].shape};
}

static rp_status build(rpi_compiler *compiler) {
    rpi_program *program = compiler->program;
    RP_TRY(rpi_graph_check(program->graph));
    RP_TRY(check_request(compiler));
    RP_TRY(rpi_backend_check_compute(program->backend, compiler->options->compute));
    RP_TRY(rpi_arena_create(BLOCK_BYTES, &program->memory));
    RP_TRY(rpi_arena_alloc(program->memory,
                           (size_t)compiler->value_count * sizeof *compiler->values,
                           &compiler->values));
    if (compiler->loss != RPI_NO_VALUE) {
        RP_TRY(add_result(compiler, compiler->loss));
        compiler->values[compiler->loss].has_gradient = compiler->options->training;
    }
    RP_TRY(add_cuts(compiler));
    for (int i = 0; i < compiler->options->result_count; i++)
        RP_TRY(add_result(compiler, compiler->options->results[i]));
    RP_TRY(rpi_compile_units(compiler));
    place_leaves(compiler);
    RP_TRY(emit_passes(compiler));
    if (compiler->options->training) RP_TRY(mark_final(compiler));
    for (int i = 0; i < program->result_count; i++)
        describe_result(compiler, &program->results[i]);
    for (int i = 0; i < program->given_count; i++)
        describe_result(compiler, &program->given[i]);
    return rpi_compile_resolve(compiler);
}

rp_status rpi_program_compile(rpi_session *session, const rpi_graph *graph, rpi_value_id loss,
                              const rpi_program_options *options, rpi_program **out_program) {
    rpi_program *program = NULL;
    RP_TRY(rpi_alloc(sizeof *program, "a program", &program));
    program->session = session;
    program->graph = graph;
    program->weights = rpi_session_weights(session);
    program->backend = rpi_session_backend(session);
    program->training = options->training;
    program->halves_apart = options->halves_apart;
    rpi_compiler compiler = {.program = program,
                             .options = options,
                             .loss = loss,
                             .kernels = rpi_session_kernels(session),
                             .value_count = rpi_graph_value_count(graph)};
    rp_status status = build(&compiler);
    rpi_free(compiler.places);
    rpi_free(compiler.buffers);
    rpi_free(compiler.reuses);
    if (status != RP_OK) {
        rpi_program_destroy(program);
        return status;
    }
    *out_program = program;
    return RP_OK;
}

rp_dtype rpi_program_handed_on(const rpi_program *program, rpi_value_id value) {
    for (int i = 0; i < program->seed_count; i++)
        if (program->seeds[i] == value && program->seed_values[i] == RP_BF16) return RP_BF16;
    for (int i = 0; i < program->given_count; i++)
        if (program->given[i].value == value && program->given_gradients[i] == RP_BF16)
            return RP_BF16;
    return RP_F32;
}
