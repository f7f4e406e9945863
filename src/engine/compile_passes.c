/* The two passes: the units forward and backward, and what the caller gives and takes in the
 * middle of a graph. */
#include "engine/compile.h"

#include "base/status.h"

/* ---- what the caller gives and takes in the middle of a graph ---- */

static rp_dtype dtype_of(const rpi_value_place *place) {
    return place->layout.dtype == RP_BF16 ? RP_BF16 : RP_F32;
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

/* ---- forward and backward ---- */

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

/* Emits second halves that wait, in order: units [*from, to) of `waiting`. */
static rp_status emit_second_halves(rpi_compiler *compiler, const int *waiting, int *from,
                                    int to) {
    for (; *from < to; ++*from)
        RP_TRY(rpi_emit_unit_weights(compiler, &compiler->units[waiting[*from]]));
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
        RP_TRY(rpi_repeat_segment(compiler, unit->segment, repeated));
        RP_TRY(rpi_repeat_ahead(compiler, i));
        RP_TRY(rpi_emit_unit_backward(compiler, unit));
        if (unit->unit.wanted && rpi_has_second_half(unit)) waiting[count++] = i;
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

rp_status rpi_compile_passes(rpi_compiler *compiler) {
    RP_TRY(place_given(compiler));
    for (int i = 0; i < compiler->unit_count; i++) RP_TRY(rpi_emit_unit(compiler, i));
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
