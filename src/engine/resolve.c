/* From places to addresses: memory is planned, and steps get (space, offset). */
#include "base/memory.h"
#include "base/status.h"
#include "engine/compile.h"

static rpi_address address_of(const rpi_compiler *compiler, rpi_value_place place) {
    const rpi_weight *weight = NULL;
    rpi_address address = {.space = RPI_SPACE_NONE};
    switch (place.kind) {
    case RPI_IN_BUFFER:
        address.space =
            compiler->buffers[place.index].is_kept ? RPI_SPACE_KEPT : RPI_SPACE_ARENA;
        address.index = (int)compiler->buffers[place.index].arena;
        address.offset = compiler->buffers[place.index].offset;
        break;
    case RPI_IN_GRADIENT:
    case RPI_IN_WEIGHTS:
        weight = compiler->values[place.index].weight;
        address.space = place.kind == RPI_IN_GRADIENT ? RPI_SPACE_GRADIENTS
                        : weight->is_state            ? RPI_SPACE_STATES
                                                      : RPI_SPACE_PARAMETERS;
        address.index = weight->index;
        break;
    case RPI_IN_INPUT:
        address.space = RPI_SPACE_INPUTS;
        address.index = place.index;
        break;
    case RPI_IN_ONE: address.space = RPI_SPACE_ONE; break;
    case RPI_IN_WORKSPACE: address.space = RPI_SPACE_WORKSPACE; break;
    case RPI_NOWHERE: break;
    }
    return address;
}

static void resolve_input(const rpi_compiler *compiler, rpi_value_place place,
                          rpi_program_step *step, int slot) {
    rpi_program *program = compiler->program;
    step->inputs[slot] = address_of(compiler, place);
    step->parameters[slot] = step->inputs[slot].space == RPI_SPACE_PARAMETERS
                                 ? compiler->values[place.index].weight->index
                                 : -1;
    if (place.kind == RPI_IN_INPUT) program->uses_input[place.index] = true;
}

static void resolve_step(const rpi_compiler *compiler, int index) {
    const rpi_step_places *places = &compiler->places[index];
    rpi_program *program = compiler->program;
    rpi_program_step *step = &program->steps[index];
    for (int i = 0; i < RPI_UNIT_INPUTS; i++) {
        resolve_input(compiler, places->inputs[i], step, i);
        step->grad_inputs[i] = address_of(compiler, places->grad_inputs[i]);
    }
    for (int i = 0; i < RPI_UNIT_OUTPUTS; i++) {
        step->outputs[i] = address_of(compiler, places->outputs[i]);
        step->grad_outputs[i] = address_of(compiler, places->grad_outputs[i]);
    }
    for (int i = 0; i < RPI_UNIT_OUTPUTS; i++)
        if (places->grad_outputs[i].kind == RPI_IN_INPUT)
            program->uses_input[places->grad_outputs[i].index] = true;
    step->saved = address_of(compiler, places->saved);
    step->workspace = address_of(compiler, places->workspace);
}

static void resolve_results(rpi_compiler *compiler) {
    rpi_program *program = compiler->program;
    for (int i = 0; i < program->result_count; i++) {
        rpi_value_place place = compiler->results[i];
        program->results[i].address = address_of(compiler, place);
        if (place.kind == RPI_IN_INPUT) program->uses_input[place.index] = true;
    }
    for (int i = 0; i < program->given_count; i++)
        program->given[i].address = address_of(compiler, compiler->given_gradients[i]);
}

/* Results outlive the run, so they lie one after the other in memory of the instance's own; the
 * plan of the arena takes them for buffers that no step touches. */
static void keep(rpi_compiler *compiler, const rpi_value_place *places, int count) {
    for (int i = 0; i < count; i++) {
        if (places[i].kind != RPI_IN_BUFFER) continue;
        rpi_buffer *buffer = &compiler->buffers[places[i].index];
        buffer->is_kept = true;
        buffer->first = 0;
        buffer->last = -1;
    }
}

/* Results go one behind the other. */
static void place_kept(rpi_compiler *compiler) {
    rpi_program *program = compiler->program;
    for (int i = 0; i < compiler->buffer_count; i++) {
        rpi_buffer *buffer = &compiler->buffers[i];
        program->facts.unshared_bytes += buffer->bytes;
        if (!buffer->is_kept) continue;
        buffer->offset = program->kept_bytes;
        program->kept_bytes += rpi_align_up(buffer->bytes);
    }
}

static void count_memory(rpi_program *program) {
    const size_t *bytes = program->arena_bytes;
    rpi_program_facts *facts = &program->facts;
    facts->memory_bytes = program->kept_bytes;
    for (int a = 0; a < RPI_ARENAS; a++) facts->memory_bytes += bytes[a];
    facts->in_flight_bytes =
        program->kept_bytes + bytes[RPI_ARENA_RUN] + bytes[RPI_ARENA_TO_INPUTS];
    facts->between_bytes =
        program->kept_bytes + bytes[RPI_ARENA_RUN] + bytes[RPI_ARENA_BETWEEN];
    facts->passing_bytes = bytes[RPI_ARENA_PASSING];
}

static rp_status plan_memory(rpi_compiler *compiler) {
    rpi_program *program = compiler->program;
    const rpi_program_options *options = compiler->options;
    const rpi_pass_ends ends = {program->forward_count, program->inputs_end};
    bool apart = options->shares_passing || (options->training && options->halves_apart);
    keep(compiler, compiler->results, program->result_count);
    keep(compiler, compiler->given_gradients, program->given_count);
    RP_TRY(rpi_memory_plan(compiler->buffers, compiler->buffer_count, compiler->reuses,
                           compiler->reuse_count, apart ? &ends : NULL, program->arena_bytes));
    place_kept(compiler);
    count_memory(program);
    return RP_OK;
}

rp_status rpi_compile_resolve(rpi_compiler *compiler) {
    rpi_program *program = compiler->program;
    program->input_count = rpi_graph_kind_count(program->graph, RPI_VALUE_INPUT) +
                           program->given_count + program->seed_count;
    RP_TRY(rpi_arena_alloc(program->memory, (size_t)program->input_count * sizeof(bool),
                           &program->uses_input));
    RP_TRY(plan_memory(compiler));
    for (int i = 0; i < program->step_count; i++) resolve_step(compiler, i);
    resolve_results(compiler);
    program->facts.steps = program->step_count;
    return rpi_list_parameter_uses(program);
}
