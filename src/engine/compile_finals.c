/* After which steps of backward which gradients of parameters are complete. */
#include "engine/compile.h"

#include "base/status.h"

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
rp_status rpi_compile_finals(rpi_compiler *compiler) {
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
