/* External nodes: a half at each end of whatever can run in between. */
#include "base/memory.h"
#include "base/status.h"
#include "engine/compile.h"
#include "engine/layers.h"

#include <string.h>

/* One direction of one node: what its two steps share. Tensors are without data. */
typedef struct half_pair {
    void *context;
    rpi_external_function start, finish;
    rpi_tensor input, output;
} half_pair;

static rp_status call(rpi_external_function function, const half_pair *pair,
                      const rpi_kernel_io *io) {
    rpi_tensor input = pair->input, output = pair->output;
    input.data = io->inputs[0];
    output.data = io->outputs[0];
    rpi_external_io external = {.input = &input, .output = &output};
    return function(pair->context, &external);
}

static rp_status run_start(void *self, const rpi_kernel_io *io) {
    const half_pair *pair = self;
    return call(pair->start, pair, io);
}

static rp_status run_finish(void *self, const rpi_kernel_io *io) {
    const half_pair *pair = self;
    return call(pair->finish, pair, io);
}

/* Emit the first half over input and output, and keep the second for the first use. */
static rp_status emit_pair(rpi_compiler *compiler, const half_pair *wanted, const char *name,
                           rpi_pass pass, rpi_place input, rpi_place output,
                           rpi_pending **out_pending) {
    half_pair *pair = NULL;
    rpi_pending *pending = NULL;
    RP_TRY(rpi_arena_alloc(compiler->program->memory, sizeof *pair, &pair));
    RP_TRY(rpi_arena_alloc(compiler->program->memory, sizeof *pending, &pending));
    *pair = *wanted;
    *pending = (rpi_pending){run_finish, pair, input, output, name, pass};
    if (pair->start) {
        rpi_program_step step = {
            .run = run_start, .self = pair, .name = name, .what = "start", .pass = pass};
        rpi_step_places places = {.inputs[0] = input, .outputs[0] = output};
        RP_TRY(rpi_emit_step(compiler, &step, &places));
    }
    *out_pending = pair->finish ? pending : NULL;
    return RP_OK;
}

rp_status rpi_emit_finish(rpi_compiler *compiler, rpi_pending **pending) {
    const rpi_pending *task = *pending;
    if (!task) return RP_OK;
    rpi_program_step step = {.run = task->finish,
                             .self = task->self,
                             .name = task->name,
                             .what = "finish",
                             .pass = task->pass};
    rpi_step_places places = {.inputs[0] = task->input, .outputs[0] = task->output};
    *pending = NULL;
    return rpi_emit_step(compiler, &step, &places);
}

static rpi_tensor tensor_of(const rpi_compiler *compiler, rpi_value_id id) {
    return (rpi_tensor){
        .dtype = RP_F32, .domain = RPI_HOST, .shape = compiler->values[id].shape};
}

rp_status rpi_emit_external_forward(rpi_compiler *compiler, rpi_compiled_unit *unit) {
    const rpi_external_attributes *external = unit->unit.nodes[0]->attributes;
    rpi_value_id in = unit->inputs[0], out = unit->outputs[0];
    rpi_compiled_value *output = &compiler->values[out];
    half_pair pair = {external->context, external->forward_start, external->forward_finish,
                      tensor_of(compiler, in), tensor_of(compiler, out)};
    rpi_place input;
    rpi_layout layout = rpi_row_major(compiler, out);
    RP_TRY(rpi_emit_use(compiler, in, rpi_row_major(compiler, in), RPI_FORWARD, &input));
    RP_TRY(rpi_emit_buffer(compiler, layout.bytes, layout, &output->place));
    return emit_pair(compiler, &pair, unit->name, RPI_FORWARD, input, output->place,
                     &output->pending);
}

rp_status rpi_emit_external_backward(rpi_compiler *compiler, rpi_compiled_unit *unit) {
    const rpi_external_attributes *external = unit->unit.nodes[0]->attributes;
    rpi_value_id in = unit->inputs[0], out = unit->outputs[0];
    rpi_layout layout = rpi_row_major(compiler, in);
    rpi_place from, to;
    RP_TRY(rpi_emit_use_gradient(compiler, out, rpi_row_major(compiler, out), &from));
    if (!external->backward_start && !external->backward_finish)
        return rpi_emit_gradient(compiler, in, from);
    half_pair pair = {external->context, external->backward_start, external->backward_finish,
                      tensor_of(compiler, out), tensor_of(compiler, in)};
    rpi_pending *pending = NULL;
    RP_TRY(rpi_emit_buffer(compiler, layout.bytes, layout, &to));
    RP_TRY(emit_pair(compiler, &pair, unit->name, RPI_BACKWARD, from, to, &pending));
    /* A sum, or a parameter's arena, needs the gradient at once; else its first use does. */
    rpi_compiled_value *input = &compiler->values[in];
    bool alone = input->gradient.kind == RPI_NOWHERE &&
                 rpi_graph_value(compiler->program->graph, in)->kind != RPI_VALUE_PARAMETER;
    if (alone)
        input->gradient_pending = pending;
    else
        RP_TRY(rpi_emit_finish(compiler, &pending));
    return rpi_emit_gradient(compiler, in, to);
}
