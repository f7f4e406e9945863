/* The cpu backend: our own kernels (engine/backends/cpu) and oneDNN's convolutions and
 * products, blocked activations, OpenMP threads. */
#include "base/cpu.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "engine/backends/cpu/cpu_op.h"
#include "engine/onednn/onednn_op.h"
#include "engine/onednn/onednn_team.h"

extern const rpi_backend rpi_backend_cpu, rpi_backend_reference;

/* ---- the session ---- */

static void close_session(void *opaque) {
    rpi_dnn_session *session = opaque;
    if (!session) return;
    if (session->reference_session) session->reference->close(session->reference_session);
    rpi_dnn_context_close(&session->dnn);
    rpi_free(session);
}

static rp_status open_parts(rpi_dnn_session *session, const rpi_backend_options *options) {
    RP_TRY(rpi_dnn_context_open(&session->dnn));
    return session->reference->open(options, &session->reference_session);
}

static rp_status open_session(const rpi_backend_options *options, void **out_session) {
    rpi_dnn_session *session = NULL;
    if (options->threads < 0)
        return RP_FAIL(INVALID, "threads is %d; 0 means one a core", options->threads);
    RP_TRY(rpi_alloc(sizeof *session, "oneDNN session", &session));
    session->threads = options->threads ? options->threads : rpi_cpu_count();
    session->block = rpi_dnn_channel_block();
    session->reference = &rpi_backend_reference;
    rpi_dnn_team_enter(session->threads);
    rp_status status = open_parts(session, options);
    if (status != RP_OK) {
        close_session(session);
        return status;
    }
    *out_session = session;
    return RP_OK;
}

static rp_status check_compute(rp_dtype compute) {
    if (compute != RP_BF16)
        return RP_FAIL(UNSUPPORTED, "backend cpu computes in f32 and bf16, not in %s",
                       rp_dtype_name(compute));
    if (rpi_dnn_has_bf16()) return RP_OK;
    return RP_FAIL(
        UNSUPPORTED,
        "bf16 needs a processor with AVX512-BF16 or AMX (Intel Sapphire Rapids, AMD "
        "Zen 4 and later), and this one, or ONEDNN_MAX_CPU_ISA, has neither; use fp32, or "
        "the reference backend, slowly");
}

/* ---- units ---- */

static bool supports(const rpi_unit *unit) {
    return rpi_backend_reference.supports(unit);
}

static bool fuse(void *session, const rpi_unit *unit, const rpi_node *next) {
    (void)session;
    const rpi_dnn_op *op = rpi_dnn_op_of(unit->nodes[0]->op);
    return op && op->fuse && op->fuse(unit, next);
}

/* Ops that need no speed, and shapes that oneDNN has nothing for, run as they are defined. */
static rp_status plan_reference(rpi_dnn_session *session, const rpi_unit *unit,
                                rpi_kernel *kernel) {
    rpi_unit plain = *unit;
    for (int i = 0; i < unit->input_count; i++) {
        if (unit->inputs[i].layout.id == RPI_DNN_PLAIN) continue;
        rpi_layout layout = rpi_dnn_layout(session, &unit->inputs[i].shape, RPI_DNN_PLAIN);
        plain.inputs[i].layout = kernel->inputs[i] = kernel->grad_inputs[i] = layout;
    }
    return session->reference->plan(session->reference_session, &plain, kernel);
}

static rp_status plan(void *opaque, const rpi_unit *unit, rpi_kernel *kernel) {
    rpi_dnn_session *session = opaque;
    const rpi_dnn_op *op = rpi_dnn_op_of(unit->nodes[0]->op);
    rpi_dnn_team_enter(session->threads);
    const rpi_cpu_op *own = rpi_cpu_op_of(unit->nodes[0]->op);
    if (!op && own) return rpi_cpu_op_plan(own, rpi_dnn_kernel_run(session), unit, kernel);
    if (!op) return plan_reference(session, unit, kernel);
    rpi_kernel before = *kernel;
    rp_status status = op->plan(session, unit, kernel);
    if (status != RP_UNSUPPORTED) return status;
    *kernel = before;
    if (unit->node_count > 1)
        return RP_FAIL(UNSUPPORTED, "oneDNN has no fused %s of this shape",
                       unit->nodes[0]->op->name);
    rpi_log(RP_LOG_INFO, "node '%s': oneDNN has no %s of this shape, the reference runs it",
            unit->nodes[0]->name, unit->nodes[0]->op->name);
    return plan_reference(session, unit, kernel);
}

/* ---- reorders ---- */

typedef struct reorder_kernel {
    const rpi_dnn_session *session;
    rpi_dnn_primitive copy;
} reorder_kernel;

static void destroy_reorder(void *self) {
    reorder_kernel *kernel = self;
    rpi_dnn_primitive_destroy(&kernel->copy);
    rpi_free(kernel);
}

static rp_status run_reorder(void *self, const rpi_kernel_io *io) {
    reorder_kernel *kernel = self;
    return rpi_dnn_copy_run(kernel->session, &kernel->copy, io->inputs[0], io->outputs[0],
                            io->workspace);
}

static rp_status make_copy(const rpi_dnn_session *session, const rpi_shape *shape,
                           rpi_layout from, rpi_layout to, rpi_dnn_primitive *out) {
    rpi_dnn_md source = NULL, target = NULL;
    const rp_dtype read = rpi_dnn_layout_dtype(from.id), made = rpi_dnn_layout_dtype(to.id);
    rp_status status = rpi_dnn_image_md(session, shape, read, from.id, &source);
    if (status == RP_OK) status = rpi_dnn_image_md(session, shape, made, to.id, &target);
    if (status == RP_OK) status = rpi_dnn_copy_create(session, source, target, false, out);
    rpi_dnn_md_destroy(source);
    rpi_dnn_md_destroy(target);
    return status;
}

static rp_status plan_reorder(void *opaque, rp_dtype dtype, const rpi_shape *shape,
                              rpi_layout from, rpi_layout to, rpi_kernel *out) {
    const rpi_dnn_session *session = opaque;
    if (dtype != RP_F32 || shape->dims != 4)
        return RP_FAIL(INTERNAL, "only f32 images have a layout of their own");
    rpi_dnn_team_enter(session->threads);
    reorder_kernel *kernel = NULL;
    RP_TRY(rpi_alloc(sizeof *kernel, "reorder kernel", &kernel));
    kernel->session = session;
    rp_status status = make_copy(session, shape, from, to, &kernel->copy);
    if (status != RP_OK) {
        rpi_free(kernel);
        if (status == RP_UNSUPPORTED)
            return RP_FAIL(UNSUPPORTED, "oneDNN has no reorder between these layouts");
        return status;
    }
    out->self = kernel;
    out->forward = run_reorder;
    out->destroy = destroy_reorder;
    out->forward_workspace = kernel->copy.scratch_bytes;
    return RP_OK;
}

static rpi_layout handed_on(void *opaque, const rpi_shape *shape, rp_dtype dtype) {
    const rpi_dnn_session *session = opaque;
    bool is_half = dtype == RP_BF16 && rpi_dnn_shape_fits_half(session, shape);
    return is_half ? rpi_dnn_layout(session, shape, RPI_DNN_HALF)
                   : (rpi_layout){.dtype = RP_F32};
}

const rpi_backend rpi_backend_cpu = {
    .name = "cpu",
    .summary = "kernels for this processor, oneDNN " RPI_DNN_VERSION
               ", blocked layouts, OpenMP threads",
    .open = open_session,
    .close = close_session,
    .check_compute = check_compute,
    .supports = supports,
    .fuse = fuse,
    .plan = plan,
    .plan_reorder = plan_reorder,
    .handed_on = handed_on,
};
