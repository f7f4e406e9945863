#include "engine/program.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "engine/compile.h"
#include "engine/finite.h"

#include <string.h>

void rpi_program_destroy(rpi_program *program) {
    if (!program) return;
    for (rpi_kernel_list *entry = program->kernels; entry; entry = entry->next)
        if (entry->kernel.destroy) entry->kernel.destroy(entry->kernel.self);
    if (program->session) program->backend->close(program->session);
    rpi_free(program->data);
    rpi_free(program->steps);
    rpi_arena_destroy(program->memory);
    rpi_free(program);
}

/* Neither kernels nor readers of results write inputs, so that constness is kept in effect. */
static rp_status put_input(const rpi_program *program, const rpi_run_options *options,
                           int index, void **slot) {
    const void *data = options->inputs ? options->inputs[index] : NULL;
    if (!data) {
        rpi_value_id id = rpi_graph_kind_at(program->graph, RPI_VALUE_INPUT, index);
        return RP_FAIL(INVALID, "input '%s' is not given",
                       rpi_graph_value(program->graph, id)->name);
    }
    memcpy(slot, &data, sizeof data);
    return RP_OK;
}

static rp_status fill_slots(rpi_program *program, const rpi_run_options *options) {
    for (int i = 0; i < program->input_patches; i++) {
        const rpi_step_patch *patch = &program->inputs[i];
        RP_TRY(put_input(program, options, patch->index,
                         &program->steps[patch->step].io.inputs[patch->slot]));
    }
    for (int i = 0; i < program->result_count; i++)
        if (program->results[i].place.kind == RPI_IN_INPUT)
            RP_TRY(put_input(program, options, program->results[i].place.index,
                             &program->results[i].tensor.data));
    for (int i = 0; i < program->version_patches; i++) {
        const rpi_step_patch *patch = &program->versions[i];
        program->steps[patch->step].io.versions[patch->slot] =
            rpi_weights_version(program->weights, patch->index);
    }
    return RP_OK;
}

/* Gradients that no step writes are zero, unless they are being accumulated. */
static void clear_unreached(const rpi_program *program) {
    float *gradients = rpi_weights_gradients(program->weights);
    for (int i = 0; i < program->unreached_count; i++) {
        const rpi_weight *weight = rpi_weights_of(program->weights, program->unreached[i]);
        memset(gradients + weight->first, 0, (size_t)weight->count * sizeof *gradients);
    }
}

static rp_status run_step(rpi_program_step *step, const rpi_run_options *options) {
    int64_t start_ns = options->on_step ? rpi_now_ns() : 0;
    step->io.accumulate = options->accumulate ? step->written_gradients : step->always_add;
    rp_status status = step->run(step->self, &step->io);
    if (status != RP_OK)
        return rpi_fail_context(status, "node '%s' (%s): ", step->name, step->what);
    if (options->on_step) {
        rpi_step_report report = {step->name, step->what, step->pass, start_ns, rpi_now_ns()};
        options->on_step(options->context, &report);
    }
    return RP_OK;
}

static rp_status report_final(const rpi_run_options *options, int64_t end, int64_t *done) {
    if (end <= *done) return RP_OK;
    int64_t first = *done;
    *done = end;
    if (!options->on_gradient_final) return RP_OK;
    return options->on_gradient_final(options->context, first, end - first);
}

rp_status rpi_program_run(rpi_program *program, const rpi_run_options *options) {
    bool backward = program->training && !options->skip_backward;
    int64_t done = 0;
    RP_TRY(fill_slots(program, options));
    if (backward && !options->accumulate) clear_unreached(program);
    for (int i = 0; i < program->step_count; i++) {
        rpi_program_step *step = &program->steps[i];
        if (step->pass == RPI_BACKWARD && !backward) break;
        RP_TRY(run_step(step, options));
        if (backward) RP_TRY(report_final(options, step->final_end, &done));
    }
    if (!backward) return RP_OK;
    return report_final(options, rpi_weights_count(program->weights), &done);
}

rp_status rpi_program_find_nonfinite(rpi_program *program, const rpi_run_options *options,
                                     const char **out_name) {
    *out_name = NULL;
    RP_TRY(fill_slots(program, options));
    for (int i = 0; i < program->step_count && program->steps[i].pass == RPI_FORWARD; i++) {
        rpi_program_step *step = &program->steps[i];
        RP_TRY(run_step(step, options));
        if (rpi_first_nonfinite(step->io.outputs[0], step->floats) < 0) continue;
        *out_name = step->name;
        return RP_OK;
    }
    return RP_OK;
}

rp_status rpi_program_result(const rpi_program *program, rpi_value_id value,
                             rpi_tensor *out_tensor) {
    for (int i = 0; i < program->result_count; i++) {
        if (program->results[i].value != value) continue;
        *out_tensor = program->results[i].tensor;
        return RP_OK;
    }
    return RP_FAIL(INVALID, "value %d is neither the loss nor a result of the program", value);
}

rpi_program_facts rpi_program_get_facts(const rpi_program *program) {
    return program->facts;
}
