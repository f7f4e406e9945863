/* Emits external nodes: each has two halves, between which other steps can run. */
#include "base/memory.h"
#include "base/status.h"
#include "engine/compile.h"
#include "engine/layers.h"

/* One direction of one node: the data of its two steps. Tensors have no elements. */
typedef struct half_pair {
    const rpi_external_attributes *external;
    bool is_backward;
    int input_count, output_count;
    rpi_tensor inputs[RPI_NODE_INPUTS], outputs[RPI_NODE_INPUTS];
} half_pair;

static rp_status call(rpi_external_function function, const half_pair *pair,
                      const rpi_kernel_io *io) {
    rpi_tensor inputs[RPI_NODE_INPUTS], outputs[RPI_NODE_INPUTS];
    for (int i = 0; i < pair->input_count; i++) {
        inputs[i] = pair->inputs[i];
        inputs[i].data = pair->is_backward ? (void *)io->grad_outputs[i] : io->inputs[i];
    }
    for (int i = 0; i < pair->output_count; i++) {
        outputs[i] = pair->outputs[i];
        outputs[i].data = pair->is_backward ? io->grad_inputs[i] : io->outputs[i];
    }
    rpi_external_io external = {.run = io->run,
                                .input_count = pair->input_count,
                                .output_count = pair->output_count,
                                .inputs = inputs,
                                .outputs = outputs};
    return function(pair->external->context, &external);
}

static rpi_external_function start_of(const half_pair *pair) {
    return pair->is_backward ? pair->external->backward_start : pair->external->forward_start;
}

static rpi_external_function finish_of(const half_pair *pair) {
    return pair->is_backward ? pair->external->backward_finish : pair->external->forward_finish;
}

static rp_status run_start(void *self, const rpi_kernel_io *io) {
    const half_pair *pair = self;
    return call(start_of(pair), pair, io);
}

static rp_status run_finish(void *self, const rpi_kernel_io *io) {
    const half_pair *pair = self;
    return call(finish_of(pair), pair, io);
}

void rpi_external_cancel(void *self, uint64_t run) {
    const half_pair *pair = self;
    const rpi_external_attributes *external = pair->external;
    if (external->cancel) external->cancel(external->context, run, pair->is_backward);
}

/* Emits the first half over these places, and keeps the second for the first use of its
 * outputs. */
static rp_status emit_pair(rpi_compiler *compiler, const half_pair *wanted, const char *name,
                           rpi_pass pass, const rpi_step_places *places,
                           rpi_pending **out_pending) {
    half_pair *pair = NULL;
    rpi_pending *pending = NULL;
    RP_TRY(rpi_arena_alloc(compiler->program->memory, sizeof *pair, &pair));
    RP_TRY(rpi_arena_alloc(compiler->program->memory, sizeof *pending, &pending));
    *pair = *wanted;
    *pending = (rpi_pending){.finish = run_finish,
                             .self = pair,
                             .places = *places,
                             .name = name,
                             .start = -1,
                             .pass = pass};
    if (start_of(pair)) {
        rpi_program_step step = {.run = run_start,
                                 .self = pair,
                                 .name = name,
                                 .what = "start",
                                 .pass = pending->pass};
        RP_TRY(rpi_emit_step(compiler, &step, places));
        pending->start = compiler->program->step_count - 1;
    }
    *out_pending = finish_of(pair) ? pending : NULL;
    return RP_OK;
}

static rpi_tensor tensor_of(const rpi_compiler *compiler, rpi_value_id id) {
    return (rpi_tensor){
        .dtype = RP_F32, .domain = RPI_HOST, .shape = compiler->values[id].shape};
}

/* Output i is input i, in the same place. */
static rp_status pass_values(rpi_compiler *compiler, const rpi_compiled_unit *unit,
                             rpi_pass pass) {
    for (int i = 0; i < unit->unit.output_count; i++) {
        rpi_value_id in = unit->inputs[i];
        RP_TRY(rpi_emit_use(compiler, in, rpi_row_major(compiler, in), pass,
                            &compiler->values[unit->outputs[i]].place));
    }
    return RP_OK;
}

bool rpi_external_sends(const rpi_node *node) {
    const rpi_external_attributes *external = node->attributes;
    return external->backward_start || external->backward_finish;
}

bool rpi_external_passes(const rpi_compiled_unit *unit) {
    const rpi_external_attributes *external = unit->unit.nodes[0]->attributes;
    return !external->forward_start && !external->forward_finish;
}

bool rpi_external_repeats(const rpi_compiled_unit *unit) {
    const rpi_external_attributes *external = unit->unit.nodes[0]->attributes;
    return external->repeats || external->always_repeats || rpi_external_passes(unit);
}

bool rpi_external_always_repeats(const rpi_compiled_unit *unit) {
    if (!rpi_is_external(unit->unit.nodes[0]->op) || rpi_external_passes(unit)) return false;
    const rpi_external_attributes *external = unit->unit.nodes[0]->attributes;
    return external->always_repeats;
}

rp_status rpi_emit_external_forward(rpi_compiler *compiler, rpi_compiled_unit *unit,
                                    rpi_pass pass) {
    half_pair pair = {.external = unit->unit.nodes[0]->attributes,
                      .input_count = unit->unit.input_count,
                      .output_count = unit->unit.output_count};
    rpi_step_places places = {0};
    rpi_pending *pending = NULL;
    if (rpi_external_passes(unit)) return pass_values(compiler, unit, pass);
    for (int i = 0; i < pair.input_count; i++) {
        rpi_value_id in = unit->inputs[i];
        pair.inputs[i] = tensor_of(compiler, in);
        RP_TRY(
            rpi_emit_use(compiler, in, rpi_row_major(compiler, in), pass, &places.inputs[i]));
    }
    for (int i = 0; i < pair.output_count; i++) {
        rpi_value_id out = unit->outputs[i];
        rpi_layout layout = rpi_row_major(compiler, out);
        pair.outputs[i] = tensor_of(compiler, out);
        RP_TRY(rpi_emit_buffer(compiler, layout.bytes, layout, &places.outputs[i]));
        compiler->values[out].place = places.outputs[i];
    }
    RP_TRY(emit_pair(compiler, &pair, unit->name, pass, &places, &pending));
    for (int i = 0; i < pair.output_count; i++)
        compiler->values[unit->outputs[i]].pending = pending;
    return RP_OK;
}

/* Output i's gradient is that of input i. */
static rp_status pass_gradients(rpi_compiler *compiler, const rpi_compiled_unit *unit) {
    for (int i = 0; i < unit->unit.output_count; i++) {
        rpi_value_id out = unit->outputs[i];
        rpi_value_place place;
        if (compiler->values[out].gradient.kind == RPI_NOWHERE) continue;
        RP_TRY(rpi_emit_use_gradient(compiler, out, rpi_row_major(compiler, out), &place));
        if (unit->unit.wanted >> i & 1u)
            RP_TRY(rpi_emit_gradient(compiler, unit->inputs[i], place));
    }
    return RP_OK;
}

/* A sum, or a parameter's arena, needs a gradient at once; otherwise its first use does. */
static rp_status hand_on(rpi_compiler *compiler, const rpi_compiled_unit *unit,
                         const rpi_step_places *places, rpi_pending *pending) {
    for (int i = 0; i < unit->unit.input_count; i++) {
        if (!(unit->unit.wanted >> i & 1u)) continue;
        rpi_value_id in = unit->inputs[i];
        rpi_compiled_value *input = &compiler->values[in];
        bool alone = input->gradient.kind == RPI_NOWHERE &&
                     rpi_graph_value(compiler->program->graph, in)->kind != RPI_VALUE_PARAMETER;
        rpi_pending *task = pending;
        if (alone)
            input->gradient_pending = pending;
        else
            RP_TRY(rpi_emit_finish(compiler, &task));
        RP_TRY(rpi_emit_gradient(compiler, in, places->grad_inputs[i]));
    }
    return RP_OK;
}

rp_status rpi_emit_external_backward(rpi_compiler *compiler, rpi_compiled_unit *unit) {
    const rpi_external_attributes *external = unit->unit.nodes[0]->attributes;
    half_pair pair = {.external = external,
                      .is_backward = true,
                      .input_count = unit->unit.output_count,
                      .output_count = unit->unit.input_count};
    rpi_step_places places = {0};
    rpi_pending *pending = NULL;
    if (!external->backward_start && !external->backward_finish)
        return pass_gradients(compiler, unit);
    for (int i = 0; i < pair.input_count; i++) {
        rpi_value_id out = unit->outputs[i];
        pair.inputs[i] = tensor_of(compiler, out);
        if (compiler->values[out].gradient.kind == RPI_NOWHERE) continue;
        RP_TRY(rpi_emit_use_gradient(compiler, out, rpi_row_major(compiler, out),
                                     &places.grad_outputs[i]));
    }
    for (int i = 0; i < pair.output_count; i++) {
        rpi_layout layout = rpi_row_major(compiler, unit->inputs[i]);
        pair.outputs[i] = tensor_of(compiler, unit->inputs[i]);
        if (unit->unit.wanted >> i & 1u)
            RP_TRY(rpi_emit_buffer(compiler, layout.bytes, layout, &places.grad_inputs[i]));
    }
    RP_TRY(emit_pair(compiler, &pair, unit->name, RPI_BACKWARD, &places, &pending));
    return hand_on(compiler, unit, &places, pending);
}
