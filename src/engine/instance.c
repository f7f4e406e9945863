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
    unsigned char *kept; /* results */
    rpi_loan *arena;     /* NULL: nothing in flight */
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

void rpi_instance_drop(rpi_instance *instance) {
    rpi_session_return(instance->arena);
    instance->arena = NULL;
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
    unsigned char *base[RPI_SPACES];
    unsigned char *const *inputs;
} memory_map;

static memory_map map_memory(const rpi_instance *instance) {
    rpi_weights *weights = instance->program->weights;
    return (memory_map){
        .base = {[RPI_SPACE_ARENA] = instance->arena ? instance->arena->data : NULL,
                 [RPI_SPACE_KEPT] = instance->kept,
                 [RPI_SPACE_WORKSPACE] = rpi_session_workspace(instance->session),
                 [RPI_SPACE_PARAMETERS] = (unsigned char *)rpi_weights_values(weights),
                 [RPI_SPACE_GRADIENTS] = (unsigned char *)rpi_weights_gradients(weights),
                 [RPI_SPACE_STATES] = (unsigned char *)rpi_weights_states(weights),
                 [RPI_SPACE_ONE] = (unsigned char *)(uintptr_t)&instance->one},
        .inputs = instance->inputs};
}

static void *locate(const memory_map *map, rpi_address address) {
    if (address.space == RPI_SPACE_NONE) return NULL;
    unsigned char *base = address.space == RPI_SPACE_INPUTS ? map->inputs[address.index]
                                                            : map->base[address.space];
    return base + address.offset;
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
    io->accumulate = accumulate ? step->written_gradients : step->always_add;
}

/* Neither kernels nor readers of results write inputs, so that constness is kept in effect. */
static rp_status take_inputs(rpi_instance *instance, const rpi_run_options *options) {
    const rpi_program *program = instance->program;
    for (int i = 0; i < program->input_count; i++) {
        const void *data = options->inputs ? options->inputs[i] : NULL;
        if (!data && program->uses_input[i]) {
            rpi_value_id id = rpi_graph_kind_at(program->graph, RPI_VALUE_INPUT, i);
            return RP_FAIL(INVALID, "input '%s' is not given",
                           rpi_graph_value(program->graph, id)->name);
        }
        memcpy(&instance->inputs[i], &data, sizeof data);
    }
    return RP_OK;
}

/* ---- running ---- */

static rp_status run_step(const memory_map *map, const rpi_program *program,
                          const rpi_program_step *step, const rpi_run_options *options) {
    int64_t start_ns = options->on_step ? rpi_now_ns() : 0;
    rpi_kernel_io io = {0};
    fill_io(map, program, step, options->accumulate, &io);
    rp_status status = step->run(step->self, &io);
    if (status != RP_OK)
        return rpi_fail_context(status, "node '%s' (%s): ", step->name, step->what);
    if (options->on_step) {
        rpi_step_report report = {step->name, step->what, step->pass, start_ns, rpi_now_ns()};
        options->on_step(options->context, &report);
    }
    return RP_OK;
}

static rp_status run_forward(rpi_instance *instance, const rpi_run_options *options) {
    const rpi_program *program = instance->program;
    memory_map map = map_memory(instance);
    for (int i = 0; i < program->forward_count; i++)
        RP_TRY(run_step(&map, program, &program->steps[i], options));
    return RP_OK;
}

static rp_status borrow_arena(rpi_instance *instance) {
    if (instance->arena) return RP_OK;
    return rpi_session_lend(instance->session, instance->program->arena_bytes,
                            &instance->arena);
}

rp_status rpi_instance_forward(rpi_instance *instance, const rpi_run_options *options) {
    RP_TRY(take_inputs(instance, options));
    RP_TRY(borrow_arena(instance));
    rp_status status = run_forward(instance, options);
    if (status != RP_OK || !instance->program->training) rpi_instance_drop(instance);
    return status;
}

/* Gradients that no step writes are zero, unless they are being accumulated. */
static void clear_unreached(const rpi_program *program) {
    float *gradients = rpi_weights_gradients(program->weights);
    for (int i = 0; i < program->unreached_count; i++) {
        const rpi_weight *weight =
            rpi_weights_parameter(program->weights, program->unreached[i]);
        memset(gradients + weight->first, 0, (size_t)weight->count * sizeof *gradients);
    }
}

/* Tell of the gradients that are final after step `done`, from the *next-th range on. */
static rp_status report_final(const rpi_program *program, const rpi_run_options *options,
                              int done, int *next) {
    for (; *next < program->final_count && program->finals[*next].step <= done; ++*next) {
        const rpi_final_range *range = &program->finals[*next];
        if (options->on_gradient_final)
            RP_TRY(options->on_gradient_final(options->context, range->first, range->count));
    }
    return RP_OK;
}

static rp_status run_backward(rpi_instance *instance, const rpi_run_options *options) {
    const rpi_program *program = instance->program;
    memory_map map = map_memory(instance);
    int next = 0;
    if (!options->accumulate) clear_unreached(program);
    for (int i = program->forward_count; i < program->step_count; i++) {
        RP_TRY(run_step(&map, program, &program->steps[i], options));
        RP_TRY(report_final(program, options, i, &next));
    }
    return report_final(program, options, program->step_count, &next);
}

rp_status rpi_instance_backward(rpi_instance *instance, const rpi_run_options *options) {
    if (!instance->program->training)
        return RP_FAIL(INVALID, "a program that was not compiled for training has no backward");
    if (!instance->arena) return RP_FAIL(INVALID, "backward without a forward pass before it");
    rp_status status = run_backward(instance, options);
    rpi_instance_drop(instance);
    return status;
}

rp_status rpi_instance_run(rpi_instance *instance, const rpi_run_options *options) {
    RP_TRY(rpi_instance_forward(instance, options));
    return instance->program->training ? rpi_instance_backward(instance, options) : RP_OK;
}

/* ---- after a run ---- */

static rp_status find_nonfinite(rpi_instance *instance, const rpi_run_options *options,
                                const char **out_name) {
    const rpi_program *program = instance->program;
    memory_map map = map_memory(instance);
    for (int i = 0; i < program->forward_count; i++) {
        const rpi_program_step *step = &program->steps[i];
        RP_TRY(run_step(&map, program, step, options));
        if (rpi_first_nonfinite(locate(&map, step->outputs[0]), step->floats) < 0) continue;
        *out_name = step->name;
        return RP_OK;
    }
    return RP_OK;
}

rp_status rpi_instance_find_nonfinite(rpi_instance *instance, const rpi_run_options *options,
                                      const char **out_name) {
    *out_name = NULL;
    RP_TRY(take_inputs(instance, options));
    RP_TRY(borrow_arena(instance));
    rp_status status = find_nonfinite(instance, options, out_name);
    rpi_instance_drop(instance);
    return status;
}

rp_status rpi_instance_result(const rpi_instance *instance, rpi_value_id value,
                              rpi_tensor *out_tensor) {
    const rpi_program *program = instance->program;
    memory_map map = map_memory(instance);
    for (int i = 0; i < program->result_count; i++) {
        const rpi_program_result *result = &program->results[i];
        if (result->value != value) continue;
        *out_tensor = result->tensor;
        out_tensor->data = locate(&map, result->address);
        return RP_OK;
    }
    return RP_FAIL(INVALID, "value %d is neither the loss nor a result of the program", value);
}
