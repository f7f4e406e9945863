#include "base/memory.h"
#include "base/status.h"
#include "engine/compile.h"

static void *address(const rpi_compiler *compiler, rpi_place place) {
    rpi_program *program = compiler->program;
    rpi_weights *weights = program->weights;
    const rpi_weight *weight = NULL;
    switch (place.kind) {
    case RPI_IN_BUFFER: return program->data + compiler->buffers[place.index].offset;
    case RPI_IN_GRADIENT:
        return rpi_weights_gradients(weights) + rpi_weights_of(weights, place.index)->first;
    case RPI_IN_WEIGHTS:
        weight = rpi_weights_of(weights, place.index);
        return weight->first +
               (rpi_graph_value(program->graph, place.index)->kind == RPI_VALUE_STATE
                    ? rpi_weights_states(weights)
                    : rpi_weights_values(weights));
    case RPI_IN_ONE: return &program->one;
    case RPI_IN_INPUT:
    case RPI_NOWHERE: break;
    }
    return NULL;
}

static void resolve_step(const rpi_compiler *compiler, int index) {
    const rpi_step_places *places = &compiler->places[index];
    rpi_kernel_io *io = &compiler->program->steps[index].io;
    for (int i = 0; i < RPI_UNIT_INPUTS; i++) {
        io->inputs[i] = address(compiler, places->inputs[i]);
        io->grad_inputs[i] = address(compiler, places->grad_inputs[i]);
    }
    for (int i = 0; i < RPI_UNIT_OUTPUTS; i++) {
        io->outputs[i] = address(compiler, places->outputs[i]);
        io->grad_outputs[i] = address(compiler, places->grad_outputs[i]);
    }
    io->saved = address(compiler, places->saved);
    io->workspace = address(compiler, places->workspace);
}

/* Slots that are filled at each run: first counted, then written. */
static void list_patches(const rpi_compiler *compiler, rpi_step_patch *inputs,
                         rpi_step_patch *versions) {
    rpi_program *program = compiler->program;
    program->input_patches = program->version_patches = 0;
    for (int i = 0; i < program->step_count; i++)
        for (int j = 0; j < RPI_UNIT_INPUTS; j++) {
            rpi_place place = compiler->places[i].inputs[j];
            rpi_step_patch patch = {i, j, place.index};
            if (place.kind == RPI_IN_INPUT) {
                if (inputs) inputs[program->input_patches] = patch;
                program->input_patches++;
            } else if (place.kind == RPI_IN_WEIGHTS &&
                       rpi_graph_value(program->graph, place.index)->kind ==
                           RPI_VALUE_PARAMETER) {
                if (versions) versions[program->version_patches] = patch;
                program->version_patches++;
            }
        }
}

rp_status rpi_compile_resolve(rpi_compiler *compiler) {
    rpi_program *program = compiler->program;
    for (int i = 0; i < program->result_count; i++)
        if (program->results[i].place.kind == RPI_IN_BUFFER)
            compiler->buffers[program->results[i].place.index].last = program->step_count;
    for (int i = 0; i < compiler->buffer_count; i++)
        program->facts.unshared_bytes += compiler->buffers[i].bytes;
    RP_TRY(rpi_memory_plan(compiler->buffers, compiler->buffer_count, compiler->reuses,
                           compiler->reuse_count, &program->facts.memory_bytes));
    RP_TRY(rpi_alloc(program->facts.memory_bytes, "activations", &program->data));
    for (int i = 0; i < program->step_count; i++) resolve_step(compiler, i);
    for (int i = 0; i < program->result_count; i++)
        program->results[i].tensor.data = address(compiler, program->results[i].place);
    list_patches(compiler, NULL, NULL);
    size_t inputs = (size_t)program->input_patches, versions = (size_t)program->version_patches;
    RP_TRY(rpi_arena_alloc(program->memory, inputs * sizeof(rpi_step_patch), &program->inputs));
    RP_TRY(rpi_arena_alloc(program->memory, versions * sizeof(rpi_step_patch),
                           &program->versions));
    list_patches(compiler, program->inputs, program->versions);
    program->facts.steps = program->step_count;
    return RP_OK;
}
