#include "engine/instance.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "engine/code.h"
#include "engine/finite.h"

#include <string.h>

struct rpi_instance {
    const rpi_program *program;
    rpi_session *session;
    unsigned char *kept;          /* results */
    rpi_loan *arenas[RPI_ARENAS]; /* NULL: none is lent now, or none is needed */
    bool in_flight;               /* the forward pass is done or running */
    bool has_inputs;              /* the first half of backward is done */
    uint64_t run, seed, step;     /* of the forward pass */
    int64_t first_sample;         /* likewise */
    unsigned char **inputs;
    float one;
};

rp_status rpi_instance_create(const rpi_program *program, rpi_instance **out_instance) {
    rpi_instance *instance = NULL;
    RP_TRY(rpi_alloc(sizeof *instance, "an instance", &instance));
    instance->program = program;
    instance->session = program->session;
    instance->one = 1;
    rp_status status = rpi_alloc(program->kept_bytes, "results", &instance->kept);
    if (status == RP_OK)
        status = rpi_alloc_array((size_t)program->input_count, sizeof *instance->inputs,
                                 "inputs", &instance->inputs);
    if (status == RP_OK)
        status = rpi_session_reserve(program->session, program->arena_bytes,
                                     program->facts.workspace_bytes);
    if (status != RP_OK) {
        rpi_instance_destroy(instance);
        return status;
    }
    *out_instance = instance;
    return RP_OK;
}

/* ---- arenas ---- */

static rp_status borrow(rpi_instance *instance, rpi_arena_kind kind) {
    size_t bytes = instance->program->arena_bytes[kind];
    if (!bytes || instance->arenas[kind]) return RP_OK;
    return rpi_arena_pool_lend(rpi_session_arenas(instance->session, kind), bytes,
                               &instance->arenas[kind]);
}

static void give_back(rpi_instance *instance, rpi_arena_kind kind) {
    rpi_arena_pool_return(instance->arenas[kind]);
    instance->arenas[kind] = NULL;
}

static rp_status borrow_forward(rpi_instance *instance) {
    instance->has_inputs = false;
    instance->in_flight = true;
    RP_TRY(borrow(instance, RPI_ARENA_RUN));
    RP_TRY(borrow(instance, RPI_ARENA_TO_INPUTS));
    return borrow(instance, RPI_ARENA_PASSING);
}

void rpi_instance_drop(rpi_instance *instance) {
    for (int a = 0; a < RPI_ARENAS; a++) give_back(instance, (rpi_arena_kind)a);
    instance->in_flight = instance->has_inputs = false;
}

void rpi_instance_destroy(rpi_instance *instance) {
    if (!instance) return;
    rpi_instance_drop(instance);
    rpi_free(instance->kept);
    rpi_free(instance->inputs);
    rpi_free(instance);
}

const rpi_program *rpi_instance_program(const rpi_instance *instance) {
    return instance->program;
}

/* ---- addresses ---- */

/* Where each space begins for a run. */
typedef struct memory_map {
    unsigned char *base[RPI_SPACES], *arenas[RPI_ARENAS];
    unsigned char *const *inputs;
    const rpi_weights *weights;
} memory_map;

static void identify(rpi_instance *instance, const rpi_run_options *options) {
    instance->run = options->run;
    instance->seed = options->seed;
    instance->first_sample = options->first_sample;
    instance->step = options->step;
}

static memory_map map_memory(const rpi_instance *instance) {
    memory_map map = {.base = {[RPI_SPACE_KEPT] = instance->kept,
                               [RPI_SPACE_WORKSPACE] = rpi_session_workspace(instance->session),
                               [RPI_SPACE_ONE] = (unsigned char *)(uintptr_t)&instance->one},
                      .inputs = instance->inputs,
                      .weights = instance->program->weights};
    for (int a = 0; a < RPI_ARENAS; a++)
        if (instance->arenas[a]) map.arenas[a] = instance->arenas[a]->data;
    return map;
}

static void *locate(const memory_map *map, rpi_address address) {
    switch ((rpi_space)address.space) {
    case RPI_SPACE_NONE: return NULL;
    case RPI_SPACE_ARENA: return map->arenas[address.index] + address.offset;
    case RPI_SPACE_INPUTS: return map->inputs[address.index];
    case RPI_SPACE_PARAMETERS: return rpi_weights_value_at(map->weights, address.index);
    case RPI_SPACE_GRADIENTS: return rpi_weights_gradient_at(map->weights, address.index);
    case RPI_SPACE_STATES: return rpi_weights_state_at(map->weights, address.index);
    default: return map->base[address.space] + address.offset;
    }
}

static void fill_io(const memory_map *map, const rpi_program *program,
                    const rpi_program_step *step, bool accumulate, rpi_kernel_io *io) {
    for (int i = 0; i < RPI_UNIT_INPUTS; i++) {
        io->inputs[i] = locate(map, step->inputs[i]);
        io->grad_inputs[i] = locate(map, step->grad_inputs[i]);
        if (step->parameters[i] >= 0)
            io->versions[i] = rpi_weights_version(program->weights, step->parameters[i]);
    }
    for (int i = 0; i < RPI_UNIT_OUTPUTS; i++) {
        io->outputs[i] = locate(map, step->outputs[i]);
        io->grad_outputs[i] = locate(map, step->grad_outputs[i]);
    }
    io->saved = locate(map, step->saved);
    io->workspace = locate(map, step->workspace);
    io->accumulate = (accumulate ? step->written_gradients : 0) | step->always_add;
    io->repeats = step->repeats;
}

/* The value whose elements, or gradient, the caller gives as input `index`. */
static const rpi_value *value_of_input(const rpi_program *program, int index) {
    int inputs = program->input_count - program->given_count - program->seed_count;
    rpi_value_id id = index < inputs ? rpi_graph_kind_at(program->graph, RPI_VALUE_INPUT, index)
                      : index < inputs + program->given_count
                          ? program->given[index - inputs].value
                          : program->seeds[index - inputs - program->given_count];
    return rpi_graph_value(program->graph, id);
}

/* `count` pointers from input `first` on. Neither kernels nor readers of results write inputs,
 * so that constness is kept in effect. */
static rp_status take(rpi_instance *instance, const char *what, const void *const *pointers,
                      int first, int count) {
    const rpi_program *program = instance->program;
    for (int i = 0; i < count; i++) {
        const void *data = pointers ? pointers[i] : NULL;
        if (!data && program->uses_input[first + i])
            return RP_FAIL(INVALID, "%s '%s' is not given", what,
                           value_of_input(program, first + i)->name);
        memcpy(&instance->inputs[first + i], &data, sizeof data);
    }
    return RP_OK;
}

static rp_status take_inputs(rpi_instance *instance, const rpi_run_options *options) {
    const rpi_program *program = instance->program;
    int inputs = program->input_count - program->given_count - program->seed_count;
    RP_TRY(take(instance, "input", options->inputs, 0, inputs));
    return take(instance, "value", options->given, inputs, program->given_count);
}

static rp_status take_seeds(rpi_instance *instance, const rpi_run_options *options) {
    const rpi_program *program = instance->program;
    return take(instance, "the gradient of", options->seeds,
                program->input_count - program->seed_count, program->seed_count);
}

/* ---- running ---- */

static rp_status run_kernel(const rpi_instance *instance, const memory_map *map,
                            const rpi_program_step *step, const rpi_run_options *options) {
    if (options->idle) return RP_OK;
    int64_t start_ns = options->on_step ? rpi_now_ns() : 0;
    rpi_kernel_io io = {.run = instance->run,
                        .seed = instance->seed,
                        .step = instance->step,
                        .first_sample = instance->first_sample};
    fill_io(map, instance->program, step, options->accumulate, &io);
    rp_status status = step->run(step->self, &io);
    if (status != RP_OK)
        return rpi_fail_context(status, "node '%s' (%s): ", step->name, step->what);
    if (options->on_step) {
        rpi_step_report report = {step->name, step->what, step->pass, start_ns, rpi_now_ns()};
        options->on_step(options->context, &report);
    }
    return RP_OK;
}

static void clear_gradient(const rpi_weights *weights, int index) {
    int64_t count = rpi_weights_parameter(weights, index)->count;
    float *gradient = rpi_weights_gradient_at(weights, index);
    memset(gradient, 0, (size_t)count * sizeof *gradient);
}

static rp_status tell_use(const rpi_instance *instance, const rpi_run_options *options,
                          int parameter, rpi_parameter_event event) {
    const rpi_weights *weights = instance->program->weights;
    if (options->on_parameter)
        RP_TRY(options->on_parameter(options->context, parameter, event));
    const float *lies = event == RPI_GRADIENT_NEEDED
                            ? rpi_weights_gradient_at(weights, parameter)
                            : rpi_weights_value_at(weights, parameter);
    if (lies && event == RPI_GRADIENT_NEEDED && options->idle && !options->accumulate)
        clear_gradient(weights, parameter);
    if (lies || event == RPI_VALUES_DONE) return RP_OK;
    return RP_FAIL(INVALID, "the %s of '%s' %s nowhere when a step needs %s",
                   event == RPI_GRADIENT_NEEDED ? "gradient" : "values",
                   rpi_weights_parameter(weights, parameter)->name,
                   event == RPI_GRADIENT_NEEDED ? "lies" : "lie",
                   event == RPI_GRADIENT_NEEDED ? "it" : "them");
}

/* Reports uses of parameters before this step, from the *next-th on. */
static rp_status tell_needs(const rpi_instance *instance, const rpi_run_options *options,
                            int step, int *next) {
    const rpi_program *program = instance->program;
    for (; *next < program->use_count; ++*next) {
        const rpi_parameter_use *use = &program->uses[*next];
        if (use->step != step || use->event == RPI_VALUES_DONE) return RP_OK;
        RP_TRY(tell_use(instance, options, use->parameter, use->event));
    }
    return RP_OK;
}

/* Reports those after the step. */
static rp_status tell_ends(const rpi_instance *instance, const rpi_run_options *options,
                           int step, int *next) {
    const rpi_program *program = instance->program;
    for (; *next < program->use_count && program->uses[*next].step == step; ++*next)
        RP_TRY(tell_use(instance, options, program->uses[*next].parameter, RPI_VALUES_DONE));
    return RP_OK;
}

/* One step of a pass. *out_done: how many of its steps have run, of which this one is `index`.
 */
static rp_status run_step(const rpi_instance *instance, const memory_map *map, int index,
                          const rpi_run_options *options, int *next, int *out_done) {
    *out_done = index;
    RP_TRY(tell_needs(instance, options, index, next));
    RP_TRY(run_kernel(instance, map, &instance->program->steps[index], options));
    *out_done = index + 1;
    return tell_ends(instance, options, index, next);
}

/* A pass has ended early: cancels external nodes whose start is among steps [first, done), the
 * last of them a step that was being `tried`, and whose finish has not been called. */
static void cancel_pending(const rpi_instance *instance, const rpi_run_options *options,
                           int first, int done, int tried) {
    const rpi_program *program = instance->program;
    for (int i = done - 1; i >= first && !options->idle; i--)
        if (program->steps[i].finish > tried)
            rpi_external_cancel(program->steps[i].self, instance->run);
}

static rp_status run_forward(rpi_instance *instance, const rpi_run_options *options) {
    const rpi_program *program = instance->program;
    memory_map map = map_memory(instance);
    int next = 0, done = 0;
    for (int i = 0; i < program->forward_count; i++) {
        rp_status status = run_step(instance, &map, i, options, &next, &done);
        if (status == RP_OK) continue;
        cancel_pending(instance, options, 0, done, i);
        return status;
    }
    return RP_OK;
}

rp_status rpi_instance_forward(rpi_instance *instance, const rpi_run_options *options) {
    if (!options->idle) RP_TRY(take_inputs(instance, options));
    rp_status status = borrow_forward(instance);
    identify(instance, options);
    if (status == RP_OK) status = run_forward(instance, options);
    give_back(instance, RPI_ARENA_PASSING);
    if (status != RP_OK || !instance->program->training) rpi_instance_drop(instance);
    return status;
}

/* Gradients that no step writes are zero, unless they are being accumulated. */
static rp_status clear_unreached(const rpi_instance *instance, const rpi_run_options *options) {
    const rpi_program *program = instance->program;
    for (int i = 0; i < program->unreached_count; i++) {
        int index = program->unreached[i];
        RP_TRY(tell_use(instance, options, index, RPI_GRADIENT_NEEDED));
        clear_gradient(program->weights, index);
    }
    return RP_OK;
}

/* Reports the gradients that are final after step `done`, from the *next-th range on. */
static rp_status report_final(const rpi_program *program, const rpi_run_options *options,
                              int done, int *next) {
    for (; *next < program->final_count && program->finals[*next].step <= done; ++*next) {
        const rpi_final_range *range = &program->finals[*next];
        if (options->on_gradient_final)
            RP_TRY(options->on_gradient_final(options->context, range->first, range->count));
    }
    return RP_OK;
}

static rp_status report_given(const rpi_program *program, const rpi_run_options *options,
                              int step) {
    for (int i = 0; options->on_given_gradient && i < program->given_count; i++)
        if (program->given[i].step == step && program->given[i].address.space != RPI_SPACE_NONE)
            RP_TRY(options->on_given_gradient(options->context, i));
    return RP_OK;
}

/* Steps [first, end) of the backward pass. */
static rp_status run_steps(const rpi_instance *instance, const rpi_run_options *options,
                           int first, int end) {
    const rpi_program *program = instance->program;
    memory_map map = map_memory(instance);
    int next = 0, next_use = rpi_first_use(program, first), done = first;
    bool is_second = first > program->forward_count;
    while (is_second && next < program->final_count && program->finals[next].step < first)
        next++;
    for (int i = first; i < end; i++) {
        rp_status status = run_step(instance, &map, i, options, &next_use, &done);
        if (status == RP_OK) status = report_given(program, options, i);
        if (status == RP_OK) status = report_final(program, options, i, &next);
        if (status == RP_OK) continue;
        cancel_pending(instance, options, first, done, i);
        return status;
    }
    if (end < program->step_count) return RP_OK;
    return report_final(program, options, program->step_count, &next);
}

static rp_status run_inputs_half(rpi_instance *instance, const rpi_run_options *options) {
    const rpi_program *program = instance->program;
    if (!options->idle) RP_TRY(take_seeds(instance, options));
    RP_TRY(borrow(instance, RPI_ARENA_BETWEEN));
    RP_TRY(borrow(instance, RPI_ARENA_PASSING));
    if (!options->accumulate) RP_TRY(clear_unreached(instance, options));
    RP_TRY(run_steps(instance, options, program->forward_count, program->inputs_end));
    give_back(instance, RPI_ARENA_PASSING);
    give_back(instance, RPI_ARENA_TO_INPUTS);
    instance->has_inputs = true;
    return RP_OK;
}

static rp_status run_weights_half(rpi_instance *instance, const rpi_run_options *options) {
    const rpi_program *program = instance->program;
    /* everything is done and reported */
    if (program->inputs_end == program->step_count) return RP_OK;
    RP_TRY(borrow(instance, RPI_ARENA_PASSING));
    return run_steps(instance, options, program->inputs_end, program->step_count);
}

static rp_status check_backward(const rpi_instance *instance, bool apart) {
    if (!instance->program->training)
        return RP_FAIL(INVALID, "a program that was not compiled for training has no backward");
    if (apart && !instance->program->halves_apart)
        return RP_FAIL(INVALID, "the program was not compiled with halves_apart");
    if (!instance->in_flight)
        return RP_FAIL(INVALID, "backward without a forward pass before it");
    return RP_OK;
}

rp_status rpi_instance_backward(rpi_instance *instance, const rpi_run_options *options) {
    RP_TRY(check_backward(instance, false));
    if (instance->has_inputs)
        return RP_FAIL(INVALID, "the first half of backward is done; the second is wanted");
    rp_status status = run_inputs_half(instance, options);
    if (status == RP_OK) status = run_weights_half(instance, options);
    rpi_instance_drop(instance);
    return status;
}

rp_status rpi_instance_backward_inputs(rpi_instance *instance, const rpi_run_options *options) {
    RP_TRY(check_backward(instance, true));
    if (instance->has_inputs)
        return RP_FAIL(INVALID, "the first half of backward is done; the second is wanted");
    rp_status status = run_inputs_half(instance, options);
    if (status != RP_OK) rpi_instance_drop(instance);
    return status;
}

rp_status rpi_instance_backward_weights(rpi_instance *instance,
                                        const rpi_run_options *options) {
    RP_TRY(check_backward(instance, true));
    if (!instance->has_inputs)
        return RP_FAIL(INVALID, "gradients of parameters before those of activations");
    rp_status status = run_weights_half(instance, options);
    rpi_instance_drop(instance);
    return status;
}

rp_status rpi_instance_run(rpi_instance *instance, const rpi_run_options *options) {
    RP_TRY(rpi_instance_forward(instance, options));
    return instance->program->training ? rpi_instance_backward(instance, options) : RP_OK;
}

/* ---- after a run ---- */

static bool has_finite_output(const memory_map *map, const rpi_program_step *step) {
    const void *output = locate(map, step->outputs[0]);
    if (step->dtype == RP_BF16) return rpi_first_nonfinite_bf16(output, step->floats) < 0;
    return rpi_first_nonfinite(output, step->floats) < 0;
}

static rp_status find_nonfinite(rpi_instance *instance, const rpi_run_options *options,
                                const char **out_name) {
    const rpi_program *program = instance->program;
    memory_map map = map_memory(instance);
    int next = 0, done = 0;
    for (int i = 0; i < program->forward_count; i++) {
        const rpi_program_step *step = &program->steps[i];
        rp_status status = run_step(instance, &map, i, options, &next, &done);
        if (status != RP_OK) {
            cancel_pending(instance, options, 0, done, i);
            return status;
        }
        if (!*out_name && !has_finite_output(&map, step)) *out_name = step->name;
    }
    return RP_OK;
}

rp_status rpi_instance_find_nonfinite(rpi_instance *instance, const rpi_run_options *options,
                                      const char **out_name) {
    *out_name = NULL;
    RP_TRY(take_inputs(instance, options));
    rp_status status = borrow_forward(instance);
    identify(instance, options);
    if (status == RP_OK) status = find_nonfinite(instance, options, out_name);
    rpi_instance_drop(instance);
    return status;
}

static bool take_result(const rpi_instance *instance, const rpi_program_result *results,
                        int count, rpi_value_id value, rpi_tensor *out_tensor) {
    memory_map map = map_memory(instance);
    for (int i = 0; i < count; i++) {
        if (results[i].value != value || results[i].address.space == RPI_SPACE_NONE) continue;
        *out_tensor = results[i].tensor;
        out_tensor->data = locate(&map, results[i].address);
        return true;
    }
    return false;
}

rp_status rpi_instance_result(const rpi_instance *instance, rpi_value_id value,
                              rpi_tensor *out_tensor) {
    const rpi_program *program = instance->program;
    if (take_result(instance, program->results, program->result_count, value, out_tensor))
        return RP_OK;
    return RP_FAIL(INVALID, "value %d is neither the loss nor a result of the program", value);
}

rp_status rpi_instance_gradient(const rpi_instance *instance, rpi_value_id given,
                                rpi_tensor *out_tensor) {
    const rpi_program *program = instance->program;
    if (take_result(instance, program->given, program->given_count, given, out_tensor))
        return RP_OK;
    return RP_FAIL(INVALID, "value %d is no given value that the loss depends on", given);
}
