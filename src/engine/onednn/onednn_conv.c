/* conv2d: direct or Winograd over blocked activations, with packed copies of the weights. In
 * bf16 the input is rounded once a run, and saved so where backward wants it; each half of
 * backward rounds the output's gradient where it does not come so. */
#include "base/memory.h"
#include "base/status.h"
#include "engine/onednn/onednn_algorithm.h"
#include "engine/onednn/onednn_conv_own.h"
#include "engine/onednn/onednn_conv_patches.h"
#include "engine/onednn/onednn_conv_shape.h"
#include "engine/onednn/onednn_conv_winograd.h"
#include "engine/onednn/onednn_op.h"

#include <string.h>

extern const rpi_op rpi_op_conv2d;
extern const rpi_dnn_op rpi_dnn_op_conv2d;

enum { INPUT, WEIGHT, BIAS };

typedef struct conv_kernel {
    rpi_dnn_session *session;
    rpi_dnn_primitive forward, backward_data, backward_weights;
    rpi_dnn_packed *forward_weight, *backward_weight; /* one, where both read one packing */
    rpi_dnn_primitive input_in, grad_in;          /* outer to inner layout; none where equal */
    rpi_dnn_primitive output_out, grad_input_out; /* inner to outer; the same */
    rpi_dnn_primitive grad_weight_out[2];         /* inner to outer: overwriting, adding */
    rpi_dnn_widening weight, bias;
    bool has_bias, is_bf16, makes_half; /* makes_half: the output and its gradient are bf16 */
    bool saves;                         /* the input as the primitives read it */
    int64_t images, filters, pixels, block; /* of the output */
    /* in the workspaces */
    size_t saved_input; /* in what is saved */
    size_t input_copy, wide_bias, forward_scratch;
    size_t output_copy, grad_input_copy;
    size_t backward_input_copy, grad_copy, grad_weight_copy, grad_weight_wide, grad_bias_aside;
    size_t backward_scratch;
} conv_kernel;

static void destroy(void *self) {
    conv_kernel *kernel = self;
    rpi_dnn_primitive_destroy(&kernel->forward);
    rpi_dnn_primitive_destroy(&kernel->backward_data);
    rpi_dnn_primitive_destroy(&kernel->backward_weights);
    rpi_dnn_packed_release(kernel->session, kernel->forward_weight);
    rpi_dnn_packed_release(kernel->session, kernel->backward_weight);
    rpi_dnn_primitive_destroy(&kernel->input_in);
    rpi_dnn_primitive_destroy(&kernel->grad_in);
    rpi_dnn_primitive_destroy(&kernel->output_out);
    rpi_dnn_primitive_destroy(&kernel->grad_input_out);
    for (int i = 0; i < 2; i++) rpi_dnn_primitive_destroy(&kernel->grad_weight_out[i]);
    rpi_free(kernel);
}

/* ---- running ---- */

/* A tensor where the primitives want it: in place, or copied. */
static rp_status bring(const conv_kernel *kernel, const rpi_dnn_primitive *way_in,
                       const void *from, void *copy, void *scratch, const void **out) {
    *out = way_in->handle ? copy : from;
    return way_in->handle ? rpi_dnn_copy_run(kernel->session, way_in, from, copy, scratch)
                          : RP_OK;
}

static rp_status bring_input(const conv_kernel *kernel, const rpi_kernel_io *io, void *scratch,
                             const void **out_input) {
    void *copy = kernel->saves ? rpi_dnn_at(io->saved, kernel->saved_input)
                               : rpi_dnn_at(io->workspace, kernel->input_copy);
    return bring(kernel, &kernel->input_in, io->inputs[INPUT], copy, scratch, out_input);
}

static rp_status bring_input_back(const conv_kernel *kernel, const rpi_kernel_io *io,
                                  void *scratch, const void **out_input) {
    *out_input = rpi_dnn_at(io->saved, kernel->saved_input);
    if (kernel->saves) return RP_OK;
    return bring(kernel, &kernel->input_in, io->inputs[INPUT],
                 rpi_dnn_at(io->workspace, kernel->backward_input_copy), scratch, out_input);
}

static rp_status bring_gradient(const conv_kernel *kernel, const rpi_kernel_io *io,
                                void *scratch, const void **out_gradient) {
    return bring(kernel, &kernel->grad_in, io->grad_outputs[0],
                 rpi_dnn_at(io->workspace, kernel->grad_copy), scratch, out_gradient);
}

/* Where a tensor is made, which is then taken out: at its place, or aside. */
static void *made_at(const rpi_dnn_primitive *way_out, const rpi_kernel_io *io, size_t offset,
                     void *place) {
    return way_out->handle ? rpi_dnn_at(io->workspace, offset) : place;
}

static rp_status take_out(const conv_kernel *kernel, const rpi_dnn_primitive *way_out,
                          const void *made, void *place, void *scratch) {
    return way_out->handle ? rpi_dnn_copy_run(kernel->session, way_out, made, place, scratch)
                           : RP_OK;
}

static rp_status renew(const conv_kernel *kernel, rpi_dnn_packed *packed,
                       const rpi_kernel_io *io, const void **out_weight) {
    return rpi_dnn_packed_renew(kernel->session, packed, io->inputs[WEIGHT],
                                io->versions[WEIGHT], out_weight);
}

static rp_status forward(void *self, const rpi_kernel_io *io) {
    const conv_kernel *kernel = self;
    void *scratch = rpi_dnn_at(io->workspace, kernel->forward_scratch);
    const void *input = NULL, *weight = NULL, *bias = NULL;
    RP_TRY(renew(kernel, kernel->forward_weight, io, &weight));
    RP_TRY(bring_input(kernel, io, scratch, &input));
    if (kernel->has_bias)
        bias = rpi_dnn_widen(&kernel->bias, io->inputs[BIAS],
                             rpi_dnn_at(io->workspace, kernel->wide_bias));
    void *output = made_at(&kernel->output_out, io, kernel->output_copy, io->outputs[0]);
    RP_TRY(rpi_dnn_primitive_run(kernel->session, &kernel->forward,
                                 (const void *[]){input, weight, output, bias}, scratch));
    return take_out(kernel, &kernel->output_out, output, io->outputs[0], scratch);
}

static rp_status backward_inputs(void *self, const rpi_kernel_io *io) {
    const conv_kernel *kernel = self;
    void *scratch = rpi_dnn_at(io->workspace, kernel->backward_scratch);
    const void *weight = NULL, *gradient = NULL;
    RP_TRY(renew(kernel, kernel->backward_weight, io, &weight));
    RP_TRY(bring_gradient(kernel, io, scratch, &gradient));
    void *made =
        made_at(&kernel->grad_input_out, io, kernel->grad_input_copy, io->grad_inputs[INPUT]);
    RP_TRY(rpi_dnn_primitive_run(kernel->session, &kernel->backward_data,
                                 (const void *[]){gradient, weight, made}, scratch));
    return take_out(kernel, &kernel->grad_input_out, made, io->grad_inputs[INPUT], scratch);
}

static rp_status deliver_weight(const conv_kernel *kernel, const rpi_kernel_io *io,
                                const void *packed, void *scratch) {
    const rpi_dnn_widening *wide = &kernel->weight;
    float *gradient = io->grad_inputs[WEIGHT];
    bool accumulate = io->accumulate >> WEIGHT & 1u;
    if (!rpi_dnn_is_widened(wide))
        return rpi_dnn_copy_run(kernel->session, &kernel->grad_weight_out[accumulate], packed,
                                gradient, scratch);
    float *aside = rpi_dnn_at(io->workspace, kernel->grad_weight_wide);
    RP_TRY(
        rpi_dnn_copy_run(kernel->session, &kernel->grad_weight_out[0], packed, aside, scratch));
    for (int64_t i = 0; i < wide->rows; i++)
        rpi_dnn_deliver(gradient + i * wide->row, aside + i * wide->wide_row, wide->row,
                        accumulate);
    return RP_OK;
}

static rp_status backward_weights(void *self, const rpi_kernel_io *io) {
    const conv_kernel *kernel = self;
    void *scratch = rpi_dnn_at(io->workspace, kernel->backward_scratch);
    const void *input = NULL, *gradient = NULL;
    void *target = rpi_dnn_at(io->workspace, kernel->grad_weight_copy);
    float *bias = rpi_dnn_at(io->workspace, kernel->grad_bias_aside);
    RP_TRY(bring_input_back(kernel, io, scratch, &input));
    RP_TRY(bring_gradient(kernel, io, scratch, &gradient));
    RP_TRY(rpi_dnn_primitive_run(kernel->session, &kernel->backward_weights,
                                 (const void *[]){input, gradient, target, bias}, scratch));
    if (kernel->has_bias && kernel->is_bf16)
        rpi_dnn_conv_sum_bias(kernel->makes_half ? rpi_kernel_bf16(io->grad_outputs[0], 0)
                                                 : rpi_kernel_f32(io->grad_outputs[0], 0),
                              kernel->images, kernel->filters, kernel->pixels, kernel->block,
                              false, bias);
    if (kernel->has_bias && io->grad_inputs[BIAS])
        rpi_dnn_deliver(io->grad_inputs[BIAS], bias, kernel->filters,
                        io->accumulate >> BIAS & 1u);
    if (!io->grad_inputs[WEIGHT]) return RP_OK;
    return deliver_weight(kernel, io, target, scratch);
}

/* ---- planning ---- */

/* Both are widened, or neither: the primitives count the same channels in all tensors. */
static void choose_widening(conv_kernel *kernel, const rpi_dnn_conv_shape *shape) {
    const rpi_dnn_geometry *wide = &shape->geometry;
    int64_t window = wide->window_height * wide->window_width;
    kernel->weight = (rpi_dnn_widening){shape->filters, shape->channels * window, wide->filters,
                                        wide->channels * window};
    kernel->bias = (rpi_dnn_widening){1, shape->filters, 1, wide->filters};
}

static rp_status make_forward(conv_kernel *kernel, const rpi_dnn_conv_layouts *layouts,
                              int parameter, rpi_dnn_geometry *geometry, rpi_dnn_conv *conv) {
    static const int names[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS};
    dnnl_primitive_desc_t pd = NULL;
    geometry->direction = RPI_DNN_FORWARD;
    RP_TRY(rpi_dnn_conv_choose(kernel->session, geometry, conv, &pd));
    rp_status status = rpi_dnn_packed_get(kernel->session, parameter, layouts->weight,
                                          rpi_dnn_described_md(pd, dnnl_query_weights_md),
                                          &kernel->weight, &kernel->forward_weight);
    if (status != RP_OK) {
        dnnl_primitive_desc_destroy(pd);
        return status;
    }
    return rpi_dnn_primitive_create(kernel->session, pd, kernel->has_bias ? 4 : 3, names,
                                    &kernel->forward);
}

/* Both ways out of an inner layout: overwriting and adding. */
static rp_status make_way_out(const rpi_dnn_session *session, rpi_dnn_const_md inner,
                              rpi_dnn_const_md outer, rpi_dnn_primitive out[2]) {
    for (int add = 0; add < 2; add++)
        RP_TRY(rpi_dnn_copy_create(session, inner, outer, add, &out[add]));
    return RP_OK;
}

static rp_status make_backward_data(conv_kernel *kernel, const rpi_dnn_conv_layouts *layouts,
                                    int parameter, rpi_dnn_geometry *geometry,
                                    rpi_dnn_conv *conv) {
    static const int names[] = {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC};
    dnnl_primitive_desc_t pd = NULL;
    geometry->direction = RPI_DNN_BACKWARD_DATA;
    RP_TRY(rpi_dnn_conv_choose(kernel->session, geometry, conv, &pd));
    rp_status status = rpi_dnn_packed_get(kernel->session, parameter, layouts->weight,
                                          rpi_dnn_described_md(pd, dnnl_query_weights_md),
                                          &kernel->weight, &kernel->backward_weight);
    if (status != RP_OK) {
        dnnl_primitive_desc_destroy(pd);
        return status;
    }
    return rpi_dnn_primitive_create(kernel->session, pd, 3, names, &kernel->backward_data);
}

static rp_status make_backward_weights(conv_kernel *kernel, const rpi_dnn_conv_layouts *layouts,
                                       rpi_dnn_geometry *geometry, rpi_dnn_conv *conv,
                                       size_t *out_bytes) {
    static const int names[] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS,
                                DNNL_ARG_DIFF_BIAS};
    dnnl_primitive_desc_t pd = NULL;
    geometry->direction = RPI_DNN_BACKWARD_WEIGHTS;
    RP_TRY(rpi_dnn_conv_choose(kernel->session, geometry, conv, &pd));
    rpi_dnn_const_md inner = rpi_dnn_described_md(pd, dnnl_query_diff_weights_md);
    *out_bytes = dnnl_memory_desc_get_size(inner);
    rp_status status =
        make_way_out(kernel->session, inner, layouts->weight, kernel->grad_weight_out);
    if (status != RP_OK) {
        dnnl_primitive_desc_destroy(pd);
        return status;
    }
    return rpi_dnn_primitive_create(kernel->session, pd, kernel->has_bias ? 4 : 3, names,
                                    &kernel->backward_weights);
}

static rp_status make_way(const rpi_dnn_session *session, rpi_dnn_const_md from,
                          rpi_dnn_const_md to, rpi_dnn_primitive *out) {
    return dnnl_memory_desc_equal(from, to)
               ? RP_OK
               : rpi_dnn_copy_create(session, from, to, false, out);
}

/* Between the layouts of the graph and those of the primitives. What is made lies in blocks
 * already, padded channels with it, unless its channels come last. */
static rp_status make_ways(conv_kernel *kernel, const rpi_unit *unit,
                           const rpi_dnn_conv_shape *shape,
                           const rpi_dnn_conv_layouts *layouts) {
    const rpi_dnn_session *session = kernel->session;
    RP_TRY(make_way(session, layouts->outer_input, layouts->input, &kernel->input_in));
    RP_TRY(make_way(session, layouts->outer_grad, layouts->grad, &kernel->grad_in));
    if (shape->made != RPI_DNN_CHANNELS_LAST) return RP_OK;
    RP_TRY(make_way(session, layouts->destination, layouts->outer_output, &kernel->output_out));
    if (!rpi_dnn_conv_wants(unit, RPI_DNN_BACKWARD_DATA)) return RP_OK;
    return make_way(session, layouts->grad_source, layouts->outer_grad_input,
                    &kernel->grad_input_out);
}

static rp_status make_primitives(conv_kernel *kernel, const rpi_unit *unit,
                                 const rpi_dnn_conv_shape *shape,
                                 const rpi_dnn_conv_layouts *layouts,
                                 size_t *out_grad_weight_bytes) {
    rpi_dnn_geometry geometry = shape->geometry;
    rpi_dnn_convs convs;
    rpi_dnn_conv_of(shape, layouts, &convs);
    int parameter = unit->inputs[WEIGHT].parameter;
    RP_TRY(make_forward(kernel, layouts, parameter, &geometry, &convs.of[RPI_DNN_FORWARD]));
    RP_TRY(make_ways(kernel, unit, shape, layouts));
    if (rpi_dnn_conv_wants(unit, RPI_DNN_BACKWARD_DATA))
        RP_TRY(make_backward_data(kernel, layouts, parameter, &geometry,
                                  &convs.of[RPI_DNN_BACKWARD_DATA]));
    if (rpi_dnn_conv_wants(unit, RPI_DNN_BACKWARD_WEIGHTS))
        RP_TRY(make_backward_weights(kernel, layouts, &geometry,
                                     &convs.of[RPI_DNN_BACKWARD_WEIGHTS],
                                     out_grad_weight_bytes));
    return RP_OK;
}

static size_t largest_scratch(const rpi_dnn_primitive *const *primitives, int count) {
    size_t bytes = 0;
    for (int i = 0; i < count; i++)
        if (primitives[i]->scratch_bytes > bytes) bytes = primitives[i]->scratch_bytes;
    return bytes;
}

static void reserve_workspaces(conv_kernel *kernel, const rpi_dnn_conv_layouts *layouts,
                               size_t grad_weight_bytes, rpi_kernel *out) {
    const rpi_dnn_primitive *forward_uses[] = {&kernel->forward, &kernel->input_in,
                                               &kernel->output_out};
    const rpi_dnn_primitive *backward_uses[] = {
        &kernel->backward_data,      &kernel->backward_weights,   &kernel->input_in,
        &kernel->grad_weight_out[0], &kernel->grad_weight_out[1], &kernel->grad_in,
        &kernel->grad_input_out,
    };
    size_t input_bytes =
        kernel->input_in.handle ? dnnl_memory_desc_get_size(layouts->input) : 0;
    size_t *forward = &out->forward_workspace, *back = &out->backward_workspace;
    kernel->forward_scratch = rpi_dnn_reserve(forward, largest_scratch(forward_uses, 3));
    if (kernel->saves)
        kernel->saved_input = rpi_dnn_reserve(&out->saved_bytes, input_bytes);
    else
        kernel->input_copy = rpi_dnn_reserve(forward, input_bytes);
    kernel->wide_bias = rpi_dnn_reserve(
        forward, kernel->has_bias ? (size_t)kernel->bias.wide_row * sizeof(float) : 0);
    kernel->backward_scratch = rpi_dnn_reserve(back, largest_scratch(backward_uses, 7));
    if (!kernel->saves) kernel->backward_input_copy = rpi_dnn_reserve(back, input_bytes);
    if (kernel->output_out.handle)
        kernel->output_copy =
            rpi_dnn_reserve(forward, dnnl_memory_desc_get_size(layouts->destination));
    if (kernel->grad_input_out.handle)
        kernel->grad_input_copy =
            rpi_dnn_reserve(back, dnnl_memory_desc_get_size(layouts->grad_source));
    if (kernel->grad_in.handle)
        kernel->grad_copy = rpi_dnn_reserve(back, dnnl_memory_desc_get_size(layouts->grad));
    kernel->grad_weight_copy = rpi_dnn_reserve(back, grad_weight_bytes);
    if (rpi_dnn_is_widened(&kernel->weight))
        kernel->grad_weight_wide =
            rpi_dnn_reserve(back, dnnl_memory_desc_get_size(layouts->weight));
    kernel->grad_bias_aside =
        rpi_dnn_reserve(back, (size_t)(kernel->filters + 16) * sizeof(float));
}

static void describe(conv_kernel *kernel, const rpi_unit *unit, const rpi_dnn_conv_shape *shape,
                     rpi_kernel *out) {
    const rpi_unit_value *input = &unit->inputs[INPUT];
    const int lies = rpi_dnn_conv_input_layout(unit, shape->outer);
    kernel->makes_half = shape->output == RPI_DNN_HALF;
    out->self = kernel;
    out->forward = forward;
    out->backward_inputs = kernel->backward_data.handle ? backward_inputs : NULL;
    out->backward_weights = kernel->backward_weights.handle ? backward_weights : NULL;
    out->destroy = destroy;
    out->inputs[INPUT] = out->grad_inputs[INPUT] =
        rpi_dnn_layout(kernel->session, &input->shape, lies);
    out->outputs[0] = out->grad_outputs[0] =
        rpi_dnn_layout(kernel->session, &unit->outputs[0].shape, shape->output);
    out->needs_inputs = (kernel->backward_weights.handle && !kernel->saves ? 1u << INPUT : 0) |
                        (kernel->backward_data.handle ? 1u << WEIGHT : 0);
    out->needs_outputs = 0;
    out->saved_bytes = 0;
    out->in_place_forward = out->in_place_backward = -1;
}

static void set_output(conv_kernel *kernel, const rpi_unit *unit) {
    const int64_t *size = unit->outputs[0].shape.size;
    kernel->images = size[0];
    kernel->filters = size[1];
    kernel->pixels = size[2] * size[3];
    kernel->block = kernel->session->block;
}

static rp_status plan(rpi_dnn_session *session, const rpi_unit *unit, rpi_kernel *out) {
    conv_kernel *kernel = NULL;
    if (rpi_dnn_conv_is_patches(session, unit))
        return rpi_dnn_conv_patches_plan(session, unit, out);
    if (rpi_dnn_conv_is_own(session, unit)) return rpi_dnn_conv_own_plan(session, unit, out);
    if (rpi_dnn_conv_is_winograd(session, unit))
        return rpi_dnn_conv_winograd_plan(session, unit, out);
    RP_TRY(rpi_alloc(sizeof *kernel, "conv2d kernel", &kernel));
    kernel->session = session;
    kernel->has_bias = unit->input_count > BIAS;
    set_output(kernel, unit);
    kernel->is_bf16 = unit->compute == RP_BF16;
    kernel->saves = kernel->is_bf16 && rpi_dnn_conv_wants(unit, RPI_DNN_BACKWARD_WEIGHTS);
    rpi_dnn_conv_layouts layouts = {0};
    rpi_dnn_conv_shape shape;
    size_t grad_weight_bytes = 0;
    rp_status status = rpi_dnn_conv_shape_choose(session, unit, &shape);
    if (status == RP_OK) choose_widening(kernel, &shape);
    if (status == RP_OK) status = rpi_dnn_conv_layouts_make(session, unit, &shape, &layouts);
    if (status == RP_OK)
        status = make_primitives(kernel, unit, &shape, &layouts, &grad_weight_bytes);
    if (status == RP_OK) {
        kernel->saves &= kernel->input_in.handle != NULL;
        describe(kernel, unit, &shape, out);
        reserve_workspaces(kernel, &layouts, grad_weight_bytes, out);
    } else {
        destroy(kernel);
    }
    rpi_dnn_conv_layouts_destroy(&layouts);
    return status;
}

const rpi_dnn_op rpi_dnn_op_conv2d = {.op = &rpi_op_conv2d, .plan = plan};
