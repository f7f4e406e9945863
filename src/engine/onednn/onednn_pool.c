/* Max pooling, by oneDNN's primitive over whatever layout the input lies in. */
#include "base/memory.h"
#include "base/status.h"
#include "engine/layers.h"
#include "engine/onednn/onednn_op.h"

extern const rpi_dnn_op rpi_dnn_op_max_pool2d;

typedef struct pool_kernel {
    const rpi_dnn_session *session;
    rpi_dnn_primitive forward, backward;
    int64_t input_count;
    bool input_is_parameter;
    size_t forward_scratch, backward_scratch, grad_aside;
} pool_kernel;

static void destroy(void *self) {
    pool_kernel *kernel = self;
    rpi_dnn_primitive_destroy(&kernel->forward);
    rpi_dnn_primitive_destroy(&kernel->backward);
    rpi_free(kernel);
}

static rp_status forward(void *self, const rpi_kernel_io *io) {
    pool_kernel *kernel = self;
    return rpi_dnn_primitive_run(kernel->session, &kernel->forward,
                                 (const void *[]){io->inputs[0], io->outputs[0], io->saved},
                                 rpi_dnn_at(io->workspace, kernel->forward_scratch));
}

static rp_status backward(void *self, const rpi_kernel_io *io) {
    pool_kernel *kernel = self;
    void *target = kernel->input_is_parameter ? rpi_dnn_at(io->workspace, kernel->grad_aside)
                                              : io->grad_inputs[0];
    RP_TRY(rpi_dnn_primitive_run(kernel->session, &kernel->backward,
                                 (const void *[]){io->grad_outputs[0], target, io->saved},
                                 rpi_dnn_at(io->workspace, kernel->backward_scratch)));
    if (kernel->input_is_parameter)
        rpi_dnn_deliver(io->grad_inputs[0], target, kernel->input_count, io->accumulate & 1u);
    return RP_OK;
}

static rp_status make_primitives(pool_kernel *kernel, const rpi_dnn_pool *pool, bool wanted,
                                 size_t *out_mask_bytes) {
    static const int forward_names[] = {DNNL_ARG_SRC, DNNL_ARG_DST, DNNL_ARG_WORKSPACE};
    static const int backward_names[] = {DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC,
                                         DNNL_ARG_WORKSPACE};
    const rpi_dnn_session *session = kernel->session;
    dnnl_primitive_desc_t pd = NULL, backward_pd = NULL;
    RP_TRY(rpi_dnn_max_pool_describe(&session->dnn, pool, &pd));
    rp_status status =
        wanted ? rpi_dnn_max_pool_backward_describe(&session->dnn, pool, pd, &backward_pd)
               : RP_OK;
    if (status != RP_OK) {
        dnnl_primitive_desc_destroy(pd);
        return status;
    }
    *out_mask_bytes =
        dnnl_memory_desc_get_size(rpi_dnn_described_md(pd, dnnl_query_workspace_md));
    status = rpi_dnn_primitive_create(session, pd, pool->training ? 3 : 2, forward_names,
                                      &kernel->forward);
    if (!wanted) return status;
    if (status != RP_OK) {
        dnnl_primitive_desc_destroy(backward_pd);
        return status;
    }
    return rpi_dnn_primitive_create(session, backward_pd, 3, backward_names, &kernel->backward);
}

static rp_status make(pool_kernel *kernel, const rpi_unit *unit, int id,
                      size_t *out_mask_bytes) {
    const rpi_max_pool2d_attributes *attributes = unit->nodes[0]->attributes;
    rpi_dnn_md source = NULL, destination = NULL;
    rp_status status = rpi_dnn_image_md(kernel->session, &unit->inputs[0].shape, id, &source);
    if (status == RP_OK)
        status = rpi_dnn_image_md(kernel->session, &unit->outputs[0].shape, id, &destination);
    if (status == RP_OK) {
        rpi_dnn_pool pool = {
            .source = source, .destination = destination, .training = unit->wanted != 0};
        for (int i = 0; i < 2; i++) {
            pool.kernel[i] = attributes->kernel;
            pool.stride[i] = attributes->stride ? attributes->stride : attributes->kernel;
            pool.padding_before[i] = pool.padding_after[i] = attributes->padding;
        }
        status = make_primitives(kernel, &pool, unit->wanted != 0, out_mask_bytes);
    }
    rpi_dnn_md_destroy(source);
    rpi_dnn_md_destroy(destination);
    return status;
}

static rp_status plan(rpi_dnn_session *session, const rpi_unit *unit, rpi_kernel *out) {
    const rpi_unit_value *input = &unit->inputs[0];
    int id = rpi_dnn_layout_for(input, input->layout.id);
    pool_kernel *kernel = NULL;
    RP_TRY(rpi_alloc(sizeof *kernel, "max_pool2d kernel", &kernel));
    kernel->session = session;
    kernel->input_count = rpi_shape_count(&input->shape);
    kernel->input_is_parameter = input->kind == RPI_VALUE_PARAMETER;
    size_t mask_bytes = 0;
    rp_status status = make(kernel, unit, id, &mask_bytes);
    if (status != RP_OK) {
        destroy(kernel);
        return status;
    }
    out->self = kernel;
    out->forward = forward;
    out->backward = unit->wanted ? backward : NULL;
    out->destroy = destroy;
    out->inputs[0] = out->grad_inputs[0] = rpi_dnn_layout(session, &input->shape, id);
    out->outputs[0] = out->grad_outputs[0] =
        rpi_dnn_layout(session, &unit->outputs[0].shape, id);
    out->backward_inputs = out->backward_outputs = 0;
    out->in_place_forward = out->in_place_backward = -1;
    out->saved_bytes = unit->wanted ? mask_bytes : 0;
    kernel->forward_scratch =
        rpi_dnn_reserve(&out->forward_workspace, kernel->forward.scratch_bytes);
    kernel->backward_scratch =
        rpi_dnn_reserve(&out->backward_workspace, kernel->backward.scratch_bytes);
    if (kernel->input_is_parameter)
        kernel->grad_aside = rpi_dnn_reserve(&out->backward_workspace, out->inputs[0].bytes);
    return RP_OK;
}

const rpi_dnn_op rpi_dnn_op_max_pool2d = {.name = "max_pool2d", .plan = plan};
