/* relu, add, and add with relu: bound by memory, blind to the layout. Values are taken as flat
 * arrays with their padding, which is zero and stays so. */
#include "base/memory.h"
#include "base/status.h"
#include "engine/onednn/onednn_op.h"

#include <string.h>

extern const rpi_dnn_op rpi_dnn_op_relu, rpi_dnn_op_add;

typedef struct pointwise_kernel {
    const rpi_dnn_session *session;
    rpi_dnn_primitive forward, backward; /* backward: none where gradients pass unchanged */
    int64_t count;
    size_t forward_scratch, backward_scratch;
    size_t aside[2]; /* in the workspace: a gradient that is then added to another */
} pointwise_kernel;

static void destroy(void *self) {
    pointwise_kernel *kernel = self;
    rpi_dnn_primitive_destroy(&kernel->forward);
    rpi_dnn_primitive_destroy(&kernel->backward);
    rpi_free(kernel);
}

static rp_status run_relu(void *self, const rpi_kernel_io *io) {
    pointwise_kernel *kernel = self;
    return rpi_dnn_primitive_run(kernel->session, &kernel->forward,
                                 (const void *[]){io->inputs[0], io->outputs[0]},
                                 rpi_dnn_at(io->workspace, kernel->forward_scratch));
}

static rp_status run_add(void *self, const rpi_kernel_io *io) {
    pointwise_kernel *kernel = self;
    return rpi_dnn_primitive_run(kernel->session, &kernel->forward,
                                 (const void *[]){io->inputs[0], io->inputs[1], io->outputs[0]},
                                 rpi_dnn_at(io->workspace, kernel->forward_scratch));
}

/* The gradient where the output is positive, for the one input that has it written. */
static rp_status run_relu_backward(void *self, const rpi_kernel_io *io) {
    pointwise_kernel *kernel = self;
    for (int i = 0; i < 2; i++) {
        if (!io->grad_inputs[i]) continue;
        bool accumulate = io->accumulate >> i & 1u;
        void *target =
            accumulate ? rpi_dnn_at(io->workspace, kernel->aside[i]) : io->grad_inputs[i];
        RP_TRY(
            rpi_dnn_primitive_run(kernel->session, &kernel->backward,
                                  (const void *[]){io->outputs[0], io->grad_outputs[0], target},
                                  rpi_dnn_at(io->workspace, kernel->backward_scratch)));
        if (accumulate) rpi_dnn_deliver(io->grad_inputs[i], target, kernel->count, true);
    }
    return RP_OK;
}

static rp_status make_backward(const rpi_dnn_session *session, rpi_dnn_const_md data,
                               rpi_dnn_primitive *out) {
    static const int names[] = {DNNL_ARG_DST, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC};
    dnnl_primitive_desc_t forward = NULL, backward = NULL;
    RP_TRY(rpi_dnn_relu_describe(&session->dnn, data, &forward));
    rp_status status = rpi_dnn_relu_backward_describe(&session->dnn, data, forward, &backward);
    dnnl_primitive_desc_destroy(forward);
    RP_TRY(status);
    return rpi_dnn_primitive_create(session, backward, 3, names, out);
}

static rp_status make_forward(const rpi_dnn_session *session, rpi_dnn_const_md data, bool add,
                              bool relu, rpi_dnn_primitive *out) {
    static const int names[] = {DNNL_ARG_SRC, DNNL_ARG_DST};
    static const int add_names[] = {DNNL_ARG_SRC_0, DNNL_ARG_SRC_1, DNNL_ARG_DST};
    dnnl_primitive_desc_t pd = NULL;
    RP_TRY(add ? rpi_dnn_add_describe(&session->dnn, data, relu, &pd)
               : rpi_dnn_relu_describe(&session->dnn, data, &pd));
    return rpi_dnn_primitive_create(session, pd, add ? 3 : 2, add ? add_names : names, out);
}

static rp_status make_primitives(pointwise_kernel *kernel, size_t bytes, bool add, bool relu,
                                 bool backward) {
    rpi_dnn_md data = NULL;
    RP_TRY(rpi_dnn_flat_md((int64_t)(bytes / sizeof(float)), &data));
    rp_status status = make_forward(kernel->session, data, add, relu, &kernel->forward);
    if (status == RP_OK && backward)
        status = make_backward(kernel->session, data, &kernel->backward);
    rpi_dnn_md_destroy(data);
    return status;
}

/* Blocked if any input lies so and none is tied to row-major. */
static int layout_of(const rpi_unit *unit) {
    int id = RPI_DNN_PLAIN;
    for (int i = 0; i < unit->input_count; i++) {
        if (unit->inputs[i].kind != RPI_VALUE_ACTIVATION) return RPI_DNN_PLAIN;
        if (unit->inputs[i].layout.id != RPI_DNN_PLAIN) id = unit->inputs[i].layout.id;
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
    kernel->backward_inputs = 0;
    kernel->backward_outputs = 1;
    kernel->in_place_backward = 0;
    if (unit->input_count < 2) return;
    uint32_t both = 3;
    bool free_both = (unit->wanted & both) == both;
    for (int i = 0; i < 2; i++) free_both &= unit->inputs[i].kind == RPI_VALUE_ACTIVATION;
    if (free_both) kernel->gradient_from[1] = 0;
}

static rp_status plan(rpi_dnn_session *session, const rpi_unit *unit, rpi_kernel *out) {
    bool add = unit->input_count == 2;
    bool relu = unit->node_count == 2 || !add;
    rpi_layout layout = rpi_dnn_layout(session, &unit->outputs[0].shape, layout_of(unit));
    pointwise_kernel *kernel = NULL;
    RP_TRY(rpi_alloc(sizeof *kernel, "pointwise kernel", &kernel));
    kernel->session = session;
    kernel->count = rpi_shape_count(&unit->outputs[0].shape);
    rp_status status =
        make_primitives(kernel, layout.bytes, add, relu, relu && unit->wanted != 0);
    if (status != RP_OK) {
        destroy(kernel);
        return status;
    }
    out->self = kernel;
    out->forward = add ? run_add : run_relu;
    out->backward = relu && unit->wanted ? run_relu_backward : NULL;
    out->destroy = destroy;
    describe_layouts(unit, layout, out);
    out->in_place_forward = 0;
    if (relu) describe_relu_backward(unit, out);
    kernel->forward_scratch =
        rpi_dnn_reserve(&out->forward_workspace, kernel->forward.scratch_bytes);
    kernel->backward_scratch =
        rpi_dnn_reserve(&out->backward_workspace, kernel->backward.scratch_bytes);
    for (int i = 0; i < unit->input_count; i++)
        if (unit->inputs[i].kind == RPI_VALUE_PARAMETER)
            kernel->aside[i] = rpi_dnn_reserve(&out->backward_workspace, layout.bytes);
    return RP_OK;
}

static bool fuse_relu(const rpi_unit *unit, const rpi_node *next) {
    return unit->node_count == 1 && !strcmp(next->op->name, "relu");
}

const rpi_dnn_op rpi_dnn_op_relu = {.name = "relu", .plan = plan};
const rpi_dnn_op rpi_dnn_op_add = {.name = "add", .fuse = fuse_relu, .plan = plan};
