/* Batch normalisation, with relu where the graph has one behind it. */
#include "base/memory.h"
#include "base/status.h"
#include "engine/layers.h"
#include "engine/onednn/onednn_op.h"

#include <string.h>

extern const rpi_dnn_op rpi_dnn_op_batch_norm2d;

enum { INPUT, SCALE, SHIFT, RUNNING_MEAN, RUNNING_VARIANCE };
enum { BACKWARD_ARGUMENTS = 8 }; /* and the mask and the shift where they are taken */

typedef struct norm_kernel {
    const rpi_dnn_session *session;
    rpi_dnn_primitive forward, backward;
    bool training, masked;     /* masked: forward notes where relu is open, for backward */
    int64_t channels, samples; /* samples: N H W */
    float momentum;
    bool input_is_parameter;
    int64_t input_count;
    bool saves;                  /* statistics go to `saved`, else to forward's workspace */
    size_t mean, variance, mask; /* there */
    size_t forward_scratch, backward_scratch;                    /* in the workspaces */
    size_t grad_input_aside, grad_scale_aside, grad_shift_aside; /* in backward's */
} norm_kernel;

static void destroy(void *self) {
    norm_kernel *kernel = self;
    rpi_dnn_primitive_destroy(&kernel->forward);
    rpi_dnn_primitive_destroy(&kernel->backward);
    rpi_free(kernel);
}

/* state = (1 - momentum) state + momentum batch; the variance becomes the unbiased one. */
static void update_running(const norm_kernel *kernel, const rpi_kernel_io *io,
                           const float *mean, const float *variance) {
    float *running_mean = io->inputs[RUNNING_MEAN];
    float *running_variance = io->inputs[RUNNING_VARIANCE];
    double momentum = kernel->momentum;
    double unbiased =
        kernel->samples > 1 ? (double)kernel->samples / (double)(kernel->samples - 1) : 1.0;
    for (int64_t c = 0; c < kernel->channels; c++) {
        running_mean[c] = (float)((1 - momentum) * running_mean[c] + momentum * mean[c]);
        running_variance[c] =
            (float)((1 - momentum) * running_variance[c] + momentum * unbiased * variance[c]);
    }
}

static rp_status forward(void *self, const rpi_kernel_io *io) {
    norm_kernel *kernel = self;
    void *mean = io->inputs[RUNNING_MEAN], *variance = io->inputs[RUNNING_VARIANCE];
    void *mask = NULL;
    if (kernel->training) {
        void *home = kernel->saves ? io->saved : io->workspace;
        mean = rpi_dnn_at(home, kernel->mean);
        variance = rpi_dnn_at(home, kernel->variance);
        mask = rpi_dnn_at(home, kernel->mask);
    }
    RP_TRY(rpi_dnn_primitive_run(kernel->session, &kernel->forward,
                                 (const void *[]){io->inputs[INPUT], mean, variance,
                                                  io->inputs[SCALE], io->inputs[SHIFT],
                                                  io->outputs[0], mask},
                                 rpi_dnn_at(io->workspace, kernel->forward_scratch)));
    if (kernel->training) update_running(kernel, io, mean, variance);
    return RP_OK;
}

static void deliver(const rpi_kernel_io *io, int input, size_t aside, int64_t count) {
    if (io->grad_inputs[input])
        rpi_dnn_deliver(io->grad_inputs[input], rpi_dnn_at(io->workspace, aside), count,
                        io->accumulate >> input & 1u);
}

static rp_status backward(void *self, const rpi_kernel_io *io) {
    norm_kernel *kernel = self;
    bool aside = !io->grad_inputs[INPUT] || kernel->input_is_parameter;
    void *grad_input =
        aside ? rpi_dnn_at(io->workspace, kernel->grad_input_aside) : io->grad_inputs[INPUT];
    const void *data[RPI_DNN_ARGUMENTS] = {io->inputs[INPUT],
                                           rpi_dnn_at(io->saved, kernel->mean),
                                           rpi_dnn_at(io->saved, kernel->variance),
                                           io->inputs[SCALE],
                                           io->grad_outputs[0],
                                           grad_input,
                                           rpi_dnn_at(io->workspace, kernel->grad_scale_aside),
                                           rpi_dnn_at(io->workspace, kernel->grad_shift_aside)};
    int count = BACKWARD_ARGUMENTS;
    if (kernel->masked) data[count++] = rpi_dnn_at(io->saved, kernel->mask);
    if (RPI_DNN_NORM_BACKWARD_TAKES_SHIFT) data[count++] = io->inputs[SHIFT];
    RP_TRY(rpi_dnn_primitive_run(kernel->session, &kernel->backward, data,
                                 rpi_dnn_at(io->workspace, kernel->backward_scratch)));
    if (kernel->input_is_parameter)
        deliver(io, INPUT, kernel->grad_input_aside, kernel->input_count);
    deliver(io, SCALE, kernel->grad_scale_aside, kernel->channels);
    deliver(io, SHIFT, kernel->grad_shift_aside, kernel->channels);
    return RP_OK;
}

static rp_status make_forward(norm_kernel *kernel, dnnl_primitive_desc_t pd) {
    static const int names[] = {DNNL_ARG_SRC,      DNNL_ARG_MEAN,  DNNL_ARG_VARIANCE,
                                DNNL_ARG_SCALE,    DNNL_ARG_SHIFT, DNNL_ARG_DST,
                                DNNL_ARG_WORKSPACE};
    return rpi_dnn_primitive_create(kernel->session, pd, kernel->masked ? 7 : 6, names,
                                    &kernel->forward);
}

static rp_status make_backward(norm_kernel *kernel, dnnl_primitive_desc_t pd) {
    int names[RPI_DNN_ARGUMENTS] = {DNNL_ARG_SRC,        DNNL_ARG_MEAN,      DNNL_ARG_VARIANCE,
                                    DNNL_ARG_SCALE,      DNNL_ARG_DIFF_DST,  DNNL_ARG_DIFF_SRC,
                                    DNNL_ARG_DIFF_SCALE, DNNL_ARG_DIFF_SHIFT};
    int count = BACKWARD_ARGUMENTS;
    if (kernel->masked) names[count++] = DNNL_ARG_WORKSPACE;
    if (RPI_DNN_NORM_BACKWARD_TAKES_SHIFT) names[count++] = DNNL_ARG_SHIFT;
    return rpi_dnn_primitive_create(kernel->session, pd, count, names, &kernel->backward);
}

static rp_status make_primitives(norm_kernel *kernel, const rpi_dnn_norm *norm, bool wanted,
                                 size_t *out_mask_bytes) {
    const rpi_dnn_context *dnn = &kernel->session->dnn;
    dnnl_primitive_desc_t pd = NULL, backward_pd = NULL;
    RP_TRY(rpi_dnn_norm_describe(dnn, norm, &pd));
    rp_status status =
        wanted ? rpi_dnn_norm_backward_describe(dnn, norm, pd, &backward_pd) : RP_OK;
    if (status != RP_OK) {
        dnnl_primitive_desc_destroy(pd);
        return status;
    }
    if (kernel->masked)
        *out_mask_bytes =
            dnnl_memory_desc_get_size(rpi_dnn_described_md(pd, dnnl_query_workspace_md));
    status = make_forward(kernel, pd);
    if (!wanted) return status;
    if (status == RP_OK) return make_backward(kernel, backward_pd);
    dnnl_primitive_desc_destroy(backward_pd);
    return status;
}

/* Statistics of whole blocks, so that nobody can write past them. */
static size_t statistics_bytes(const norm_kernel *kernel) {
    size_t block = (size_t)kernel->session->block;
    return ((size_t)kernel->channels + block - 1) / block * block * sizeof(float);
}

static void describe(norm_kernel *kernel, const rpi_unit *unit, rpi_layout layout,
                     size_t mask_bytes, rpi_kernel *out) {
    out->self = kernel;
    out->forward = forward;
    out->backward = unit->wanted ? backward : NULL;
    out->destroy = destroy;
    out->inputs[INPUT] = out->grad_inputs[INPUT] = layout;
    out->outputs[0] = out->grad_outputs[0] = layout;
    out->backward_inputs = 1u << INPUT | 1u << SCALE | 1u << SHIFT;
    out->backward_outputs = 0;
    out->in_place_forward = -1;
    out->in_place_backward = kernel->input_is_parameter ? -1 : 0;
    size_t statistics = statistics_bytes(kernel);
    size_t *home = kernel->saves ? &out->saved_bytes : &out->forward_workspace;
    out->saved_bytes = 0;
    kernel->forward_scratch =
        rpi_dnn_reserve(&out->forward_workspace, kernel->forward.scratch_bytes);
    if (unit->training) {
        kernel->mean = rpi_dnn_reserve(home, statistics);
        kernel->variance = rpi_dnn_reserve(home, statistics);
        kernel->mask = rpi_dnn_reserve(home, mask_bytes);
    }
    kernel->backward_scratch =
        rpi_dnn_reserve(&out->backward_workspace, kernel->backward.scratch_bytes);
    kernel->grad_scale_aside = rpi_dnn_reserve(&out->backward_workspace, statistics);
    kernel->grad_shift_aside = rpi_dnn_reserve(&out->backward_workspace, statistics);
    if (kernel->input_is_parameter || !(unit->wanted >> INPUT & 1u))
        kernel->grad_input_aside = rpi_dnn_reserve(&out->backward_workspace, layout.bytes);
}

static rp_status plan(rpi_dnn_session *session, const rpi_unit *unit, rpi_kernel *out) {
    const rpi_batch_norm2d_attributes *attributes = unit->nodes[0]->attributes;
    const rpi_unit_value *input = &unit->inputs[INPUT];
    int id = rpi_dnn_layout_for(input, input->layout.id);
    norm_kernel *kernel = NULL;
    RP_TRY(rpi_alloc(sizeof *kernel, "batch_norm2d kernel", &kernel));
    *kernel = (norm_kernel){.session = session,
                            .training = unit->training,
                            .masked = unit->training && unit->node_count == 2,
                            .saves = unit->wanted != 0,
                            .channels = input->shape.size[1],
                            .momentum = attributes->momentum,
                            .input_is_parameter = input->kind == RPI_VALUE_PARAMETER,
                            .input_count = rpi_shape_count(&input->shape)};
    kernel->samples = kernel->input_count / kernel->channels;
    rpi_dnn_md data = NULL;
    size_t mask_bytes = 0;
    rp_status status = rpi_dnn_image_md(session, &input->shape, id, &data);
    rpi_dnn_norm norm = {.data = data,
                         .epsilon = attributes->epsilon,
                         .training = unit->training,
                         .relu = unit->node_count == 2};
    if (status == RP_OK)
        status = make_primitives(kernel, &norm, unit->wanted != 0, &mask_bytes);
    rpi_dnn_md_destroy(data);
    if (status != RP_OK) {
        destroy(kernel);
        return status;
    }
    describe(kernel, unit, rpi_dnn_layout(session, &input->shape, id), mask_bytes, out);
    return RP_OK;
}

static bool fuse(const rpi_unit *unit, const rpi_node *next) {
    return unit->node_count == 1 && !strcmp(next->op->name, "relu");
}

const rpi_dnn_op rpi_dnn_op_batch_norm2d = {.name = "batch_norm2d", .fuse = fuse, .plan = plan};
