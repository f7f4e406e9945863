#include "engine/backends/cpu/cpu_op.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdio.h>

rpi_dropout_mask rpi_cpu_mask(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io,
                              float probability) {
    return (rpi_dropout_mask){.probability = kernel->unit.training ? (double)probability : 0,
                              .seed = io->seed,
                              .step = (uint32_t)io->step,
                              .tensor = rpi_dropout_tensor(kernel->unit.nodes[0]->name)};
}

static rp_status forward(void *self, const rpi_kernel_io *io) {
    const rpi_cpu_kernel *kernel = self;
    return kernel->op->forward(kernel, io);
}

static rp_status backward(void *self, const rpi_kernel_io *io) {
    const rpi_cpu_kernel *kernel = self;
    return kernel->op->backward(kernel, io);
}

static void destroy(void *self) {
    rpi_cpu_kernel *kernel = self;
    rpi_free(kernel->prepared);
    rpi_free(kernel);
}

/* Values may lie otherwise where the backend has layouts of its own. */
static rpi_layout row_major(const rpi_unit_value *value) {
    size_t count = (size_t)rpi_shape_count(&value->shape);
    return (rpi_layout){.id = 0, .bytes = count * rp_dtype_bytes(value->dtype)};
}

rp_status rpi_cpu_op_plan(const rpi_cpu_op *op, rpi_kernel_run run, const rpi_unit *unit,
                          rpi_kernel *out) {
    rpi_cpu_kernel *kernel = NULL;
    RP_TRY(rpi_alloc(sizeof *kernel, "a kernel", &kernel));
    *kernel = (rpi_cpu_kernel){.op = op, .run = run, .unit = *unit};
    rp_status status = op->prepare ? op->prepare(unit, &kernel->prepared) : RP_OK;
    if (status != RP_OK) {
        rpi_free(kernel);
        return status;
    }
    for (int i = 0; i < unit->input_count; i++)
        out->inputs[i] = out->grad_inputs[i] = row_major(&unit->inputs[i]);
    out->self = kernel;
    out->forward = forward;
    out->backward_inputs = out->backward_weights = backward;
    out->destroy = destroy;
    if (op->describe) op->describe(unit, out);
    return RP_OK;
}

const char *rpi_cpu_element_text(const rpi_unit_value *value, int64_t index, char *text,
                                 size_t bytes) {
    int64_t inside = rpi_shape_count(&value->shape);
    size_t used = (size_t)snprintf(text, bytes, "%s", value->name);
    for (int i = 0; i < value->shape.dims && used < bytes; i++) {
        inside /= value->shape.size[i];
        used += (size_t)snprintf(text + used, bytes - used, "[%lld]",
                                 (long long)(index / inside % value->shape.size[i]));
    }
    return text;
}
