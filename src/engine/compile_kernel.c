/* Asks the backend for the kernel of a unit, and checks what it gives. */
#include "engine/compile.h"

#include "base/status.h"

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

rp_status rpi_compile_kernel(rpi_compiler *compiler, rpi_compiled_unit *unit) {
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
