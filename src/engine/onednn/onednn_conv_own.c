#include "engine/onednn/onednn_conv_own.h"

#include "base/memory.h"
#include "base/status.h"
#include "engine/backends/cpu/kernels/kernel_matmul.h"
#include "engine/layers.h"
#include "engine/onednn/onednn_conv_shape.h"
#include "engine/onednn/onednn_linear.h"
#include "engine/onednn/onednn_team.h"

#include <string.h>

enum { INPUT, WEIGHT, BIAS };
enum { OVERWRITING, ADDING, DELIVERIES };
enum { BLOCK = RPI_MATMUL_BLOCK };

/* The weight is read as filters x channels where the window is one pixel, else from a copy of
 * bf16, window x window x channels x filters. Its gradient is made like it, and copied out. */
typedef struct own_kernel {
    rpi_dnn_session *session;
    rpi_kernel_run run;
    int64_t images, channels, filters, window, stride, padding;
    int64_t height, width, rows, cols; /* of the input, of the output */
    bool has_bias, is_half;            /* is_half: the input is of bf16 */
    bool makes_half;                   /* so is the output; gradients lie as the values do */
    /* What is of bf16 is rounded as it is made, or in a pass of its own. */
    rpi_dnn_primitive round, round_back;           /* none: at once */
    size_t sums, sums_back;                        /* what is rounded then, in the workspaces */
    rpi_dnn_packed *weight;                        /* NULL: as it lies */
    rpi_dnn_primitive weight_gradient[DELIVERIES]; /* none: in place */
    size_t gradient, products, copy;               /* in backward's workspace */
} own_kernel;

static void destroy(void *self) {
    own_kernel *k = self;
    rpi_dnn_packed_release(k->session, k->weight);
    for (int i = 0; i < DELIVERIES; i++) rpi_dnn_primitive_destroy(&k->weight_gradient[i]);
    rpi_dnn_primitive_destroy(&k->round);
    rpi_dnn_primitive_destroy(&k->round_back);
    rpi_free(k);
}

/* ---- matrices ---- */

/* The input's pixels at the first place of the window, for each of the output. */
static rpi_matmul_pixels input_under_output(const own_kernel *k) {
    return (rpi_matmul_pixels){.rows = k->rows,
                               .cols = k->cols,
                               .blocks = k->channels / BLOCK,
                               .height = k->height,
                               .width = k->width,
                               .stride = k->stride,
                               .up = -k->padding,
                               .left = -k->padding,
                               .divisor = 1};
}

/* The output's pixels which have an input's at that place, for each of the input. */
static rpi_matmul_pixels output_over_input(const own_kernel *k) {
    return (rpi_matmul_pixels){.rows = k->height,
                               .cols = k->width,
                               .blocks = k->filters / BLOCK,
                               .height = k->rows,
                               .width = k->cols,
                               .stride = 1,
                               .up = k->padding,
                               .left = k->padding,
                               .divisor = k->stride};
}

static rpi_matmul_pixels all_of(int64_t channels, int64_t rows, int64_t cols) {
    return (rpi_matmul_pixels){.rows = rows,
                               .cols = cols,
                               .blocks = channels / BLOCK,
                               .height = rows,
                               .width = cols,
                               .stride = 1,
                               .divisor = 1};
}

static rpi_kernel_rows image(const void *data, bool is_half) {
    return is_half ? rpi_kernel_bf16(data, 0) : rpi_kernel_f32(data, 0);
}

static void multiply(const own_kernel *k, const rpi_kernel_matmul *product) {
    rpi_dnn_team_enter(k->run.threads);
    rpi_kernel_matmul_run(&k->run, product);
}

/* filters x channels, or the copy's channels x filters, which are the other way round. */
static rp_status bring_weight(const own_kernel *k, const rpi_kernel_io *io,
                              rpi_kernel_rows *out_weight) {
    *out_weight = rpi_kernel_f32(io->inputs[WEIGHT], k->channels);
    if (!k->weight) return RP_OK;
    const void *copy = NULL;
    RP_TRY(rpi_dnn_packed_renew(k->session, k->weight, io->inputs[WEIGHT], io->versions[WEIGHT],
                                &copy));
    *out_weight = rpi_kernel_bf16(copy, k->filters);
    return RP_OK;
}

/* ---- running ---- */

static void fill_with_bias(const own_kernel *k, const float *bias, float *y) {
    const int64_t blocks = k->filters / BLOCK, pixels = k->rows * k->cols;
    for (int64_t plane = 0; plane < k->images * blocks; plane++)
        for (int64_t p = 0; p < pixels; p++)
            memcpy(y + (plane * pixels + p) * BLOCK, bias + plane % blocks * BLOCK,
                   BLOCK * sizeof *y);
}

static rp_status forward(void *self, const rpi_kernel_io *io) {
    const own_kernel *k = self;
    const rpi_matmul_pixels x = input_under_output(k), y = all_of(k->filters, k->rows, k->cols);
    const bool rounds = k->round.handle != NULL;
    void *made = rounds ? rpi_dnn_at(io->workspace, k->sums) : io->outputs[0];
    rpi_kernel_matmul product = {.m = k->images * k->rows * k->cols,
                                 .n = k->filters,
                                 .k = k->channels,
                                 .a = image(io->inputs[INPUT], k->is_half),
                                 .a_pixels = &x,
                                 .b_transposed = !k->weight,
                                 .c = image(made, k->makes_half && !rounds),
                                 .c_pixels = &y,
                                 .accumulate = k->has_bias,
                                 .window = k->window,
                                 .tap = k->channels * k->filters,
                                 .step = 1,
                                 .workspace = io->workspace};
    RP_TRY(bring_weight(k, io, &product.b));
    if (k->has_bias) fill_with_bias(k, io->inputs[BIAS], made);
    multiply(k, &product);
    if (!rounds) return RP_OK;
    return rpi_dnn_copy_run(k->session, &k->round, made, io->outputs[0], io->workspace);
}

static rp_status backward_inputs(void *self, const rpi_kernel_io *io) {
    const own_kernel *k = self;
    const rpi_matmul_pixels dy = output_over_input(k),
                            dx = all_of(k->channels, k->height, k->width);
    const bool rounds = k->round_back.handle != NULL;
    void *made = rounds ? rpi_dnn_at(io->workspace, k->sums_back) : io->grad_inputs[INPUT];
    rpi_kernel_matmul product = {.m = k->images * k->height * k->width,
                                 .n = k->channels,
                                 .k = k->filters,
                                 .a = image(io->grad_outputs[0], k->makes_half),
                                 .a_pixels = &dy,
                                 .b_transposed = k->weight != NULL,
                                 .c = image(made, k->is_half && !rounds),
                                 .c_pixels = &dx,
                                 .accumulate = io->accumulate >> INPUT & 1u,
                                 .window = k->window,
                                 .tap = k->channels * k->filters,
                                 .step = -1,
                                 .workspace = rpi_dnn_at(io->workspace, k->products)};
    RP_TRY(bring_weight(k, io, &product.b));
    multiply(k, &product);
    if (!rounds) return RP_OK;
    return rpi_dnn_copy_run(k->session, &k->round_back, made, io->grad_inputs[INPUT],
                            rpi_dnn_at(io->workspace, k->copy));
}

/* filters x channels, where the window is one pixel. */
static void make_weight_gradient(const own_kernel *k, const rpi_kernel_io *io) {
    const rpi_matmul_pixels x = input_under_output(k),
                            dy = all_of(k->filters, k->rows, k->cols);
    multiply(k, &(rpi_kernel_matmul){.m = k->filters,
                                     .n = k->channels,
                                     .k = k->images * k->rows * k->cols,
                                     .a = image(io->grad_outputs[0], k->makes_half),
                                     .a_pixels = &dy,
                                     .a_transposed = true,
                                     .b = image(io->inputs[INPUT], k->is_half),
                                     .b_pixels = &x,
                                     .c = rpi_kernel_f32(io->grad_inputs[WEIGHT], k->channels),
                                     .accumulate = io->accumulate >> WEIGHT & 1u,
                                     .workspace = rpi_dnn_at(io->workspace, k->products)});
}

/* channels x filters for each place of the window, then copied to where they belong. */
static rp_status make_window_gradient(const own_kernel *k, const rpi_kernel_io *io) {
    const rpi_matmul_pixels dy = all_of(k->filters, k->rows, k->cols);
    float *gradient = rpi_dnn_at(io->workspace, k->gradient);
    for (int64_t place = 0; place < k->window * k->window; place++) {
        rpi_matmul_pixels x = input_under_output(k);
        x.up += place / k->window;
        x.left += place % k->window;
        multiply(
            k, &(rpi_kernel_matmul){
                   .m = k->channels,
                   .n = k->filters,
                   .k = k->images * k->rows * k->cols,
                   .a = image(io->inputs[INPUT], k->is_half),
                   .a_pixels = &x,
                   .a_transposed = true,
                   .b = image(io->grad_outputs[0], k->makes_half),
                   .b_pixels = &dy,
                   .c = rpi_kernel_f32(gradient + place * k->channels * k->filters, k->filters),
                   .workspace = rpi_dnn_at(io->workspace, k->products)});
    }
    return rpi_dnn_copy_run(k->session, &k->weight_gradient[io->accumulate >> WEIGHT & 1u],
                            gradient, io->grad_inputs[WEIGHT],
                            rpi_dnn_at(io->workspace, k->copy));
}

static rp_status backward_weights(void *self, const rpi_kernel_io *io) {
    const own_kernel *k = self;
    if (k->has_bias && io->grad_inputs[BIAS])
        rpi_dnn_conv_sum_bias(image(io->grad_outputs[0], k->makes_half), k->images, k->filters,
                              k->rows * k->cols, BLOCK, io->accumulate >> BIAS & 1u,
                              io->grad_inputs[BIAS]);
    if (!io->grad_inputs[WEIGHT]) return RP_OK;
    if (k->weight) return make_window_gradient(k, io);
    make_weight_gradient(k, io);
    return RP_OK;
}

/* ---- planning ---- */

/* For windows of several pixels what is read is packed once for each of them, and oneDNN's own
 * kernels are quicker where rows are not too short for them: a step of ResNet-50 (batch 4)
 * takes 0.6 to 0.7 s so, and 0.7 to 0.9 with this kernel alone; ResNet-18 (28 x 28, batch 32),
 * whose last images are 4 x 4, 0.4 s, and 0.6 to 0.7. Where a window moves by more than a
 * pixel, oneDNN 2 is slow backward: 26 and 88 ms for the input's and the weight's gradient of
 * 512 channels of 14 x 14 (batch 8), 14 and 9 here. */
static bool is_quick_elsewhere(const rpi_unit *unit) {
    const rpi_conv2d_attributes *conv = unit->nodes[0]->attributes;
    return unit->inputs[WEIGHT].shape.size[2] > 1 && conv->stride <= 1 &&
           unit->outputs[0].shape.size[3] >= RPI_DNN_SHORTEST_ROW;
}

bool rpi_dnn_conv_is_own(const rpi_dnn_session *session, const rpi_unit *unit) {
    const int64_t *weight = unit->inputs[WEIGHT].shape.size;
    if (is_quick_elsewhere(unit)) return false;
    return unit->compute == RP_BF16 && rpi_dnn_convolves_itself(session) &&
           session->block == BLOCK && unit->inputs[INPUT].kind == RPI_VALUE_ACTIVATION &&
           weight[0] % BLOCK == 0 && weight[1] % BLOCK == 0 && weight[2] == weight[3];
}

static rp_status make_copies(own_kernel *k, int parameter) {
    const int64_t size[] = {k->filters, k->channels, k->window, k->window};
    rpi_dnn_md plain = NULL, rounded = NULL, made = NULL;
    rp_status status = rpi_dnn_md_create(4, size, RP_F32, dnnl_oihw, &plain);
    if (status == RP_OK) status = rpi_dnn_md_create(4, size, RP_BF16, dnnl_hwio, &rounded);
    if (status == RP_OK) status = rpi_dnn_md_create(4, size, RP_F32, dnnl_hwio, &made);
    if (status == RP_OK)
        status = rpi_dnn_packed_get(k->session, parameter, plain, rounded,
                                    &(rpi_dnn_widening){0}, &k->weight);
    for (int i = 0; i < DELIVERIES && status == RP_OK; i++)
        status =
            rpi_dnn_copy_create(k->session, made, plain, i == ADDING, &k->weight_gradient[i]);
    rpi_dnn_md_destroy(plain);
    rpi_dnn_md_destroy(rounded);
    rpi_dnn_md_destroy(made);
    return status;
}

/* Sums that are made in several steps are of f32 until the last. */
static rp_status make_rounding(const own_kernel *k, const rpi_shape *shape,
                               rpi_dnn_primitive *out) {
    rpi_dnn_md sums = NULL, rounded = NULL;
    rp_status status = rpi_dnn_image_md(k->session, shape, RP_F32, RPI_DNN_BLOCKED, &sums);
    if (status == RP_OK)
        status = rpi_dnn_image_md(k->session, shape, RP_BF16, RPI_DNN_HALF, &rounded);
    if (status == RP_OK) status = rpi_dnn_copy_create(k->session, sums, rounded, false, out);
    rpi_dnn_md_destroy(sums);
    rpi_dnn_md_destroy(rounded);
    return status;
}

static rp_status make_roundings(own_kernel *k, const rpi_unit *unit) {
    const bool is_wide = k->window > 1, makes_dx = unit->wanted >> INPUT & 1u;
    if (k->makes_half && (is_wide || k->has_bias || k->channels > RPI_MATMUL_DEPTH))
        RP_TRY(make_rounding(k, &unit->outputs[0].shape, &k->round));
    if (!k->is_half || !makes_dx || (!is_wide && k->filters <= RPI_MATMUL_DEPTH)) return RP_OK;
    return make_rounding(k, &unit->inputs[INPUT].shape, &k->round_back);
}

static void describe(own_kernel *k, const rpi_unit *unit, rpi_kernel *out) {
    const uint32_t weights = 1u << WEIGHT | 1u << BIAS;
    out->self = k;
    out->forward = forward;
    out->backward_inputs = unit->wanted >> INPUT & 1u ? backward_inputs : NULL;
    out->backward_weights = unit->wanted & weights ? backward_weights : NULL;
    out->destroy = destroy;
    out->accumulates = k->is_half ? 0 : 1u << INPUT;
    out->inputs[INPUT] = out->grad_inputs[INPUT] = rpi_dnn_layout(
        k->session, &unit->inputs[INPUT].shape, k->is_half ? RPI_DNN_HALF : RPI_DNN_BLOCKED);
    out->outputs[0] = out->grad_outputs[0] = rpi_dnn_layout(
        k->session, &unit->outputs[0].shape, k->makes_half ? RPI_DNN_HALF : RPI_DNN_BLOCKED);
    out->needs_inputs = 1u << INPUT | 1u << WEIGHT;
    out->needs_outputs = 0;
    out->saved_bytes = 0;
    out->in_place_forward = out->in_place_backward = -1;
}

static size_t largest(size_t a, size_t b) {
    return a > b ? a : b;
}

static void reserve(own_kernel *k, const rpi_unit *unit, rpi_kernel *out) {
    const size_t products = rpi_kernel_matmul_workspace(&k->run);
    const int64_t elements = k->window * k->window * k->channels * k->filters;
    const rpi_shape *x = &unit->inputs[INPUT].shape, *y = &unit->outputs[0].shape;
    size_t copy = k->round_back.scratch_bytes, *back = &out->backward_workspace;
    for (int i = 0; i < DELIVERIES; i++)
        copy = largest(copy, k->weight_gradient[i].scratch_bytes);
    rpi_dnn_reserve(&out->forward_workspace, largest(products, k->round.scratch_bytes));
    if (k->round.handle)
        k->sums = rpi_dnn_reserve(&out->forward_workspace,
                                  rpi_dnn_layout(k->session, y, RPI_DNN_BLOCKED).bytes);
    if (k->round_back.handle)
        k->sums_back =
            rpi_dnn_reserve(back, rpi_dnn_layout(k->session, x, RPI_DNN_BLOCKED).bytes);
    k->products = rpi_dnn_reserve(back, products);
    k->copy = rpi_dnn_reserve(back, copy);
    k->gradient = rpi_dnn_reserve(back, k->weight ? (size_t)elements * sizeof(float) : 0);
}

rp_status rpi_dnn_conv_own_plan(rpi_dnn_session *session, const rpi_unit *unit,
                                rpi_kernel *out) {
    const rpi_conv2d_attributes *conv = unit->nodes[0]->attributes;
    const int64_t *x = unit->inputs[INPUT].shape.size, *y = unit->outputs[0].shape.size;
    own_kernel *k = NULL;
    RP_TRY(rpi_alloc(sizeof *k, "conv2d kernel", &k));
    *k = (own_kernel){.session = session,
                      .run = rpi_dnn_kernel_run(session),
                      .images = x[0],
                      .channels = x[1],
                      .filters = y[1],
                      .window = unit->inputs[WEIGHT].shape.size[2],
                      .stride = conv->stride,
                      .padding = conv->padding,
                      .height = x[2],
                      .width = x[3],
                      .rows = y[2],
                      .cols = y[3],
                      .has_bias = unit->input_count > BIAS,
                      .is_half = unit->inputs[INPUT].layout.id == RPI_DNN_HALF};
    k->makes_half = rpi_dnn_conv_makes_half(session, unit);
    rp_status status = k->window > 1 ? make_copies(k, unit->inputs[WEIGHT].parameter) : RP_OK;
    if (status == RP_OK) status = make_roundings(k, unit);
    if (status != RP_OK) {
        destroy(k);
        return status;
    }
    describe(k, unit, out);
    reserve(k, unit, out);
    return RP_OK;
}
