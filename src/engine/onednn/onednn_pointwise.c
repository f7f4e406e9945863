/* relu, add, and add with relu: bound by memory, blind to the layout. */
#include "base/memory.h"
#include "base/status.h"
#include "engine/backends/cpu/kernels/kernel_activation.h"
#include "engine/onednn/onednn_elementwise.h"
#include "engine/onednn/onednn_op.h"
#include "engine/onednn/onednn_team.h"

#include <string.h>

extern const rpi_op rpi_op_relu, rpi_op_add, rpi_op_conv2d, rpi_op_max_pool2d;
extern const rpi_dnn_op rpi_dnn_op_relu, rpi_dnn_op_add;

typedef struct pointwise_kernel {
    int threads;
    bool relu;
    int64_t count; /* with the padding of the layout */
} pointwise_kernel;

static void destroy(void *self) {
    rpi_free(self);
}

static rp_status run_relu(void *self, const rpi_kernel_io *io) {
    const pointwise_kernel *kernel = self;
    rpi_dnn_relu(kernel->threads, kernel->count, io->inputs[0], io->outputs[0]);
    return RP_OK;
}

static rp_status run_add(void *self, const rpi_kernel_io *io) {
    const pointwise_kernel *kernel = self;
    rpi_dnn_add(kernel->threads, kernel->count, io->inputs[0], io->inputs[1], kernel->relu,
                io->outputs[0]);
    return RP_OK;
}

static rp_status run_relu_backward(void *self, const rpi_kernel_io *io) {
    const pointwise_kernel *kernel = self;
    for (int i = 0; i < 2; i++)
        if (io->grad_inputs[i])
            rpi_dnn_relu_backward(kernel->threads, kernel->count, io->outputs[0],
                                  io->grad_outputs[0], io->grad_inputs[i]);
    return RP_OK;
}

/* ---- a sum in bf16: with relu, or of two gradients ---- */

typedef struct half_kernel {
    rpi_kernel_run run;
    bool relu;
    bool is_half[2],
        makes_half; /* which input, and the output, are rounded; so are gradients */
    int64_t count;
} half_kernel;

static rpi_kernel_rows row_of(const half_kernel *k, bool is_half, const void *data) {
    return is_half ? rpi_kernel_bf16(data, k->count) : rpi_kernel_f32(data, k->count);
}

static rp_status run_half(void *self, const rpi_kernel_io *io) {
    const half_kernel *k = self;
    rpi_dnn_team_enter(k->run.threads);
    rpi_kernel_add_bias(&k->run,
                        &(rpi_kernel_add){.rows = 1,
                                          .cols = k->count,
                                          .a = row_of(k, k->is_half[0], io->inputs[0]),
                                          .b = row_of(k, k->is_half[1], io->inputs[1]),
                                          .relu = k->relu,
                                          .y = row_of(k, k->makes_half, io->outputs[0])});
    return RP_OK;
}

static rp_status run_half_backward(void *self, const rpi_kernel_io *io) {
    const half_kernel *k = self;
    rpi_dnn_team_enter(k->run.threads);
    for (int i = 0; i < 2; i++)
        if (io->grad_inputs[i])
            rpi_kernel_relu_backward(&k->run,
                                     &(rpi_kernel_relu_gradient){
                                         .rows = 1,
                                         .cols = k->count,
                                         .y = row_of(k, k->makes_half, io->outputs[0]),
                                         .dy = row_of(k, k->makes_half, io->grad_outputs[0]),
                                         .dx = row_of(k, k->is_half[i], io->grad_inputs[i])});
    return RP_OK;
}

/* Blocked if any input lies so and none is tied to row-major. */
static int layout_of(const rpi_unit *unit) {
    int id = RPI_DNN_PLAIN;
    for (int i = 0; i < unit->input_count; i++) {
        if (unit->inputs[i].kind != RPI_VALUE_ACTIVATION) return RPI_DNN_PLAIN;
        if (unit->inputs[i].layout.id != RPI_DNN_PLAIN)
            id = rpi_dnn_layout_for(&unit->inputs[i], unit->inputs[i].layout.id);
    }
    return id;
}

static void describe_layouts(const rpi_unit *unit, rpi_layout layout, rpi_kernel *kernel) {
    for (int i = 0; i < unit->input_count; i++)
        kernel->inputs[i] = kernel->grad_inputs[i] = layout;
    kernel->outputs[0] = kernel->grad_outputs[0] = layout;
}

/* relu: its gradient is made once, in place, and serves all inputs of the sum. */
static void describe_relu_backward(const rpi_unit *unit, rpi_kernel *kernel) {
    kernel->needs_inputs = 0;
    kernel->needs_outputs = 1;
    kernel->in_place_backward = 0;
    uint32_t both = 3;
    if (unit->input_count == 2 && (unit->wanted & both) == both) kernel->gradient_from[1] = 0;
}

static rp_status open_half(const rpi_dnn_session *session, const rpi_unit *unit,
                           half_kernel **out_kernel) {
    half_kernel *k = NULL;
    RP_TRY(rpi_alloc(sizeof *k, "pointwise kernel", &k));
    *k = (half_kernel){.run = rpi_dnn_kernel_run(session),
                       .count = rpi_shape_count(&unit->outputs[0].shape)};
    for (int i = 0; i < 2; i++) k->is_half[i] = unit->inputs[i].layout.id == RPI_DNN_HALF;
    *out_kernel = k;
    return RP_OK;
}

/* Gradients lie as the values do. */
static void describe_half(half_kernel *k, const rpi_dnn_session *session, const rpi_unit *unit,
                          rpi_kernel *out) {
    const rpi_shape *shape = &unit->outputs[0].shape;
    const rpi_layout half = rpi_dnn_layout(session, shape, RPI_DNN_HALF);
    describe_layouts(unit, rpi_dnn_layout(session, shape, RPI_DNN_BLOCKED), out);
    for (int i = 0; i < 2; i++)
        if (k->is_half[i]) out->inputs[i] = out->grad_inputs[i] = half;
    if (k->makes_half) out->outputs[0] = out->grad_outputs[0] = half;
    out->self = k;
    out->forward = run_half;
    out->destroy = destroy;
    out->in_place_forward = 0;
}

static rp_status plan_half(const rpi_dnn_session *session, const rpi_unit *unit,
                           rpi_kernel *out) {
    static const rpi_op *const readers[] = {&rpi_op_conv2d, &rpi_op_add, &rpi_op_max_pool2d,
                                            NULL};
    half_kernel *k = NULL;
    RP_TRY(open_half(session, unit, &k));
    k->relu = true;
    k->makes_half = rpi_dnn_makes_half(session, unit, readers);
    describe_half(k, session, unit, out);
    out->backward_inputs = run_half_backward;
    describe_relu_backward(unit, out);
    if (k->is_half[0] != k->is_half[1]) out->gradient_from[1] = RPI_GRADIENT_WRITTEN;
    return RP_OK;
}

/* Two gradients of one value that lies in bf16. */
static bool is_sum_of_half(const rpi_unit *unit) {
    return !unit->training && unit->node_count == 1 && unit->input_count == 2 &&
           unit->inputs[0].layout.id == RPI_DNN_HALF &&
           unit->inputs[1].layout.id == RPI_DNN_HALF;
}

static rp_status plan_sum_of_half(const rpi_dnn_session *session, const rpi_unit *unit,
                                  rpi_kernel *out) {
    half_kernel *k = NULL;
    RP_TRY(open_half(session, unit, &k));
    k->makes_half = true;
    describe_half(k, session, unit, out);
    return RP_OK;
}

static rp_status plan(rpi_dnn_session *session, const rpi_unit *unit, rpi_kernel *out) {
    bool add = unit->input_count == 2;
    bool relu = unit->node_count == 2 || !add;
    rpi_layout layout = rpi_dnn_layout(session, &unit->outputs[0].shape, layout_of(unit));
    pointwise_kernel *kernel = NULL;
    if (add && relu && layout.id == RPI_DNN_BLOCKED &&
        rpi_dnn_fits_half(session, unit, &unit->outputs[0].shape))
        return plan_half(session, unit, out);
    if (is_sum_of_half(unit)) return plan_sum_of_half(session, unit, out);
    RP_TRY(rpi_alloc(sizeof *kernel, "pointwise kernel", &kernel));
    *kernel = (pointwise_kernel){.threads = session->threads,
                                 .relu = relu,
                                 .count = (int64_t)(layout.bytes / sizeof(float))};
    out->self = kernel;
    out->forward = add ? run_add : run_relu;
    out->backward_inputs = relu && unit->wanted ? run_relu_backward : NULL;
    out->destroy = destroy;
    describe_layouts(unit, layout, out);
    out->in_place_forward = 0;
    if (relu) describe_relu_backward(unit, out);
    return RP_OK;
}

static bool fuse_relu(const rpi_unit *unit, const rpi_node *next) {
    return unit->node_count == 1 && next->op == &rpi_op_relu;
}

const rpi_dnn_op rpi_dnn_op_relu = {.op = &rpi_op_relu, .plan = plan};
const rpi_dnn_op rpi_dnn_op_add = {.op = &rpi_op_add, .fuse = fuse_relu, .plan = plan};
