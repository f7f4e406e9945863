/* The steps of one unit: forward, forward again where backward recomputes it, and backward in
 * one call or two. */
#include "engine/compile.h"

#include "base/status.h"

static rp_status in_unit(rp_status status, const rpi_compiled_unit *unit) {
    if (status == RP_OK) return RP_OK;
    return rpi_fail_context(status, "node '%s' (%s): ", unit->name, unit->what);
}

/* ---- forward ---- */

static rp_status emit_saved(rpi_compiler *compiler, rpi_compiled_unit *unit) {
    size_t bytes = unit->kernel->saved_bytes;
    if (!unit->unit.wanted || !bytes) return RP_OK;
    return rpi_emit_buffer(compiler, bytes, (rpi_layout){.bytes = bytes}, &unit->saved);
}

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
    RP_TRY(rpi_compile_kernel(compiler, unit));
    return run_forward_kernel(compiler, unit, RPI_FORWARD);
}

static rp_status emit_forward(rpi_compiler *compiler, rpi_compiled_unit *unit) {
    const rpi_op *op = unit->unit.nodes[0]->op;
    if (op->is_view) return emit_view(compiler, unit, RPI_FORWARD);
    if (rpi_is_external(op)) return rpi_emit_external_forward(compiler, unit, RPI_FORWARD);
    return emit_forward_kernel(compiler, unit);
}

rp_status rpi_emit_unit(rpi_compiler *compiler, int index) {
    rpi_compiled_unit *unit = &compiler->units[index];
    rp_status status = emit_forward(compiler, unit);
    if (status == RP_UNSUPPORTED && unit->unit.node_count > 1) {
        RP_TRY(in_unit(rpi_split_unit(compiler, index), unit));
        status = emit_forward(compiler, unit);
    }
    return in_unit(status, unit);
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

rp_status rpi_emit_unit_again(rpi_compiler *compiler, rpi_compiled_unit *unit) {
    return in_unit(repeat_unit(compiler, unit), unit);
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

static rp_status emit_weights(rpi_compiler *compiler, rpi_compiled_unit *unit) {
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

rp_status rpi_emit_unit_backward(rpi_compiler *compiler, rpi_compiled_unit *unit) {
    return in_unit(emit_backward(compiler, unit), unit);
}

bool rpi_has_second_half(const rpi_compiled_unit *unit) {
    return unit->kernel && unit->kernel->backward_weights && rpi_written(unit, true);
}

rp_status rpi_emit_unit_weights(rpi_compiler *compiler, rpi_compiled_unit *unit) {
    return in_unit(emit_weights(compiler, unit), unit);
}
