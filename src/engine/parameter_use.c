/* When the steps of a program read parameters and write their gradients. */
#include "base/memory.h"
#include "base/status.h"
#include "engine/compile.h"

#include <stdlib.h>
#include <string.h>

/* What has been found of each parameter in the pass at hand: steps, or -1. */
typedef struct usage {
    int first, last;
} usage;

typedef struct use_list {
    rpi_parameter_use *uses;
    int count;
} use_list;

/* By step; what is needed before a step stands in front of what is done behind it. */
static int by_step(const void *a, const void *b) {
    const rpi_parameter_use *x = a, *y = b;
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    if (x->event != y->event) return x->event < y->event ? -1 : 1;
    return x->parameter < y->parameter ? -1 : x->parameter > y->parameter;
}

static void add_use(use_list *list, int step, rpi_parameter_event event, int parameter) {
    list->uses[list->count++] = (rpi_parameter_use){step, event, parameter};
}

static void forget(usage *of, int parameters) {
    for (int i = 0; i < parameters; i++) of[i] = (usage){-1, -1};
}

static void see(usage *of, int parameter, int step) {
    if (of[parameter].first < 0) of[parameter].first = step;
    of[parameter].last = step;
}

/* Values, in one pass: steps [from, to). */
static void list_values(const rpi_program *program, int from, int to, usage *of, int parameters,
                        use_list *list) {
    forget(of, parameters);
    for (int i = from; i < to; i++)
        for (int j = 0; j < RPI_UNIT_INPUTS; j++)
            if (program->steps[i].parameters[j] >= 0)
                see(of, program->steps[i].parameters[j], i);
    for (int i = 0; i < parameters; i++) {
        if (of[i].first < 0) continue;
        add_use(list, of[i].first, RPI_VALUES_NEEDED, i);
        add_use(list, of[i].last, RPI_VALUES_DONE, i);
    }
}

/* Gradients, over all of the backward pass; those that no step writes are cleared before it. */
static void list_gradients(const rpi_program *program, usage *of, int parameters,
                           use_list *list) {
    forget(of, parameters);
    for (int i = program->forward_count; i < program->step_count; i++)
        for (int j = 0; j < RPI_UNIT_INPUTS; j++)
            if (program->steps[i].grad_inputs[j].space == RPI_SPACE_GRADIENTS)
                see(of, program->steps[i].grad_inputs[j].index, i);
    for (int i = 0; i < parameters; i++)
        if (of[i].first >= 0) add_use(list, of[i].first, RPI_GRADIENT_NEEDED, i);
}

rp_status rpi_list_parameter_uses(rpi_program *program) {
    int parameters = rpi_weights_parameter_count(program->weights);
    size_t most = 7 * (size_t)parameters; /* two in each of three passes, and a gradient */
    usage *of = NULL;
    use_list list = {0};
    RP_TRY(rpi_arena_alloc(program->memory, most * sizeof *list.uses, &list.uses));
    RP_TRY(rpi_alloc_array((size_t)parameters, sizeof *of, "uses of parameters", &of));
    list_values(program, 0, program->forward_count, of, parameters, &list);
    if (program->training) {
        list_values(program, program->forward_count, program->inputs_end, of, parameters,
                    &list);
        list_values(program, program->inputs_end, program->step_count, of, parameters, &list);
        list_gradients(program, of, parameters, &list);
    }
    rpi_free(of);
    qsort(list.uses, (size_t)list.count, sizeof *list.uses, by_step);
    program->uses = list.uses;
    program->use_count = list.count;
    return RP_OK;
}

int rpi_first_use(const rpi_program *program, int step) {
    int first = 0, end = program->use_count;
    while (first < end) {
        int middle = first + (end - first) / 2;
        if (program->uses[middle].step < step)
            first = middle + 1;
        else
            end = middle;
    }
    return first;
}
