#include "base/memory.h"
#include "base/status.h"
#include "engine/backends/cpu/cpu_op.h"
#include "engine/reference/ref.h"

extern const rpi_backend rpi_backend_reference;

extern const rpi_ref_op rpi_ref_add, rpi_ref_batch_norm2d, rpi_ref_conv2d,
    rpi_ref_global_avg_pool, rpi_ref_linear, rpi_ref_max_pool2d, rpi_ref_relu;

static const rpi_ref_op *const table[] = {
    &rpi_ref_conv2d,     &rpi_ref_batch_norm2d,    &rpi_ref_relu,   &rpi_ref_add,
    &rpi_ref_max_pool2d, &rpi_ref_global_avg_pool, &rpi_ref_linear,
};

static const rpi_ref_op *find(const rpi_op *op) {
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i]->op == op) return table[i];
    return NULL;
}

/* There is nothing to share between kernels. */
static rp_status open_session(const rpi_backend_options *options, void **out_session) {
    (void)options;
    *out_session = NULL;
    return RP_OK;
}

static void close_session(void *session) {
    (void)session;
}

static rp_status check_compute(rp_dtype compute) {
    if (compute == RP_BF16) return RP_OK;
    return RP_FAIL(UNSUPPORTED, "the reference computes in f32 and bf16, not in %s",
                   rp_dtype_name(compute));
}

static bool supports(const rpi_unit *unit) {
    const rpi_op *op = unit->nodes[0]->op;
    return unit->node_count == 1 && (find(op) || rpi_cpu_op_of(op));
}

typedef struct ref_kernel {
    const rpi_ref_op *op;
    rpi_unit unit;
} ref_kernel;

static rp_status forward(void *self, const rpi_kernel_io *io) {
    const ref_kernel *kernel = self;
    return kernel->op->forward(&kernel->unit, io);
}

static rp_status backward(void *self, const rpi_kernel_io *io) {
    const ref_kernel *kernel = self;
    return kernel->op->backward(&kernel->unit, io);
}

static rp_status plan(void *session, const rpi_unit *unit, rpi_kernel *kernel) {
    (void)session;
    ref_kernel *self = NULL;
    const rpi_cpu_op *op = rpi_cpu_op_of(unit->nodes[0]->op);
    const rpi_kernel_run plain = {.threads = 1, .isa = RPI_ISA_SCALAR};
    if (op) return rpi_cpu_op_plan(op, plain, unit, kernel);
    const rpi_ref_op *defined = find(unit->nodes[0]->op);
    if (defined->is_product && unit->compute == RP_BF16)
        return rpi_ref_bf16_plan(defined, unit, kernel);
    RP_TRY(rpi_alloc(sizeof *self, "a kernel", &self));
    self->op = defined;
    self->unit = *unit;
    kernel->self = self;
    kernel->forward = forward;
    /* An op writes the gradients that it is asked for. */
    kernel->backward_inputs = self->op->backward ? backward : NULL;
    kernel->backward_weights = self->op->at_once ? NULL : kernel->backward_inputs;
    kernel->accumulates = self->op->accumulates ? ~0u : 0;
    kernel->destroy = rpi_free;
    if (self->op->workspace_bytes)
        kernel->forward_workspace = kernel->backward_workspace =
            self->op->workspace_bytes(unit);
    return RP_OK;
}

const rpi_backend rpi_backend_reference = {
    .name = "reference",
    .summary = "plain loops, sums in double: the definition of every op",
    .open = open_session,
    .close = close_session,
    .check_compute = check_compute,
    .supports = supports,
    .plan = plan,
};
