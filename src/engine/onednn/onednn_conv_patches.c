#include "engine/onednn/onednn_conv_patches.h"

#include "base/memory.h"
#include "base/status.h"
#include "engine/backends/cpu/kernels/kernel_matmul.h"
#include "engine/layers.h"
#include "engine/onednn/onednn_linear.h"
#include "engine/onednn/onednn_sgemm.h"
#include "engine/onednn/onednn_team.h"

#include <string.h>

enum { INPUT, WEIGHT, BIAS };

/* All is row-major. For each image y (filters x count) = w (filters x size) p^T, where p has a
 * row for each patch: channels x side x side of the image. */
typedef struct patches_kernel {
    rpi_kernel_run run;
    bool is_bf16, has_bias;
    int64_t images, channels, height, width, filters;
    int64_t side, rows, cols; /* of a patch; patches of a column, of a row of the image */
    int64_t count, size;      /* patches of an image; elements of a patch */
    size_t patches, scratch;  /* in either workspace */
} patches_kernel;

static void destroy(void *self) {
    rpi_free(self);
}

/* ---- patches ---- */

static int64_t image_at(const patches_kernel *k, int64_t image) {
    return image * k->channels * k->height * k->width;
}

/* Row `y` of the channel in every patch of a row of them: from the image, or back into it. */
static void copy_rows(const patches_kernel *k, float *line, float *patch, bool back) {
    const size_t bytes = (size_t)k->side * sizeof *line;
    for (int64_t col = 0; col < k->cols; col++, line += k->side, patch += k->size)
        memcpy(back ? line : patch, back ? patch : line, bytes);
}

/* Only reads the image unless it goes back. */
static void copy_patches(const patches_kernel *k, float *image, float *patches, bool back) {
    for (int64_t c = 0; c < k->channels; c++)
        for (int64_t row = 0; row < k->rows; row++)
            for (int64_t y = 0; y < k->side; y++)
                copy_rows(k, image + (c * k->height + row * k->side + y) * k->width,
                          patches + row * k->cols * k->size + (c * k->side + y) * k->side,
                          back);
}

static float *bring_patches(const patches_kernel *k, const rpi_kernel_io *io, int64_t image) {
    float *patches = rpi_dnn_at(io->workspace, k->patches);
    copy_patches(k, (float *)io->inputs[INPUT] + image_at(k, image), patches, false);
    return patches;
}

/* ---- products ---- */

static rp_status multiply(const patches_kernel *k, const rpi_kernel_io *io,
                          rpi_kernel_matmul it) {
    it.workspace = rpi_dnn_at(io->workspace, k->scratch);
    if (!k->is_bf16)
        return rpi_dnn_sgemm(&k->run, &(rpi_kernel_sgemm){.m = it.m,
                                                          .n = it.n,
                                                          .k = it.k,
                                                          .a = it.a,
                                                          .b = it.b,
                                                          .a_transposed = it.a_transposed,
                                                          .b_transposed = it.b_transposed,
                                                          .c = it.c,
                                                          .accumulate = it.accumulate,
                                                          .workspace = it.workspace});
    rpi_dnn_team_enter(k->run.threads);
    rpi_kernel_matmul_run(&k->run, &it);
    return RP_OK;
}

static void add_bias(const patches_kernel *k, const float *bias, float *y) {
    for (int64_t f = 0; f < k->filters; f++)
        for (int64_t p = 0; p < k->count; p++) y[f * k->count + p] += bias[f];
}

static rp_status forward(void *self, const rpi_kernel_io *io) {
    const patches_kernel *k = self;
    for (int64_t n = 0; n < k->images; n++) {
        const float *patches = bring_patches(k, io, n);
        float *y = (float *)io->outputs[0] + n * k->filters * k->count;
        RP_TRY(multiply(k, io,
                        (rpi_kernel_matmul){.m = k->filters,
                                            .n = k->count,
                                            .k = k->size,
                                            .a = rpi_kernel_f32(io->inputs[WEIGHT], k->size),
                                            .b = rpi_kernel_f32(patches, k->size),
                                            .b_transposed = true,
                                            .c = rpi_kernel_f32(y, k->count)}));
        if (k->has_bias) add_bias(k, io->inputs[BIAS], y);
    }
    return RP_OK;
}

/* Pixels beside the last whole patch have none. */
static rp_status backward_inputs(void *self, const rpi_kernel_io *io) {
    const patches_kernel *k = self;
    float *patches = rpi_dnn_at(io->workspace, k->patches), *dx = io->grad_inputs[INPUT];
    memset(dx, 0, (size_t)image_at(k, k->images) * sizeof *dx);
    for (int64_t n = 0; n < k->images; n++) {
        const float *dy = (const float *)io->grad_outputs[0] + n * k->filters * k->count;
        RP_TRY(multiply(k, io,
                        (rpi_kernel_matmul){.m = k->count,
                                            .n = k->size,
                                            .k = k->filters,
                                            .a = rpi_kernel_f32(dy, k->count),
                                            .a_transposed = true,
                                            .b = rpi_kernel_f32(io->inputs[WEIGHT], k->size),
                                            .c = rpi_kernel_f32(patches, k->size)}));
        copy_patches(k, dx + image_at(k, n), patches, true);
    }
    return RP_OK;
}

static void sum_bias(const patches_kernel *k, const rpi_kernel_io *io) {
    const float *dy = io->grad_outputs[0];
    float *sums = io->grad_inputs[BIAS];
    for (int64_t f = 0; f < k->filters; f++) {
        double sum = io->accumulate >> BIAS & 1u ? (double)sums[f] : 0;
        for (int64_t n = 0; n < k->images; n++)
            for (int64_t p = 0; p < k->count; p++)
                sum += (double)dy[(n * k->filters + f) * k->count + p];
        sums[f] = (float)sum;
    }
}

static rp_status backward_weights(void *self, const rpi_kernel_io *io) {
    const patches_kernel *k = self;
    if (k->has_bias && io->grad_inputs[BIAS]) sum_bias(k, io);
    for (int64_t n = 0; io->grad_inputs[WEIGHT] && n < k->images; n++) {
        const float *patches = bring_patches(k, io, n);
        const float *dy = (const float *)io->grad_outputs[0] + n * k->filters * k->count;
        RP_TRY(multiply(
            k, io,
            (rpi_kernel_matmul){.m = k->filters,
                                .n = k->size,
                                .k = k->count,
                                .a = rpi_kernel_f32(dy, k->count),
                                .b = rpi_kernel_f32(patches, k->size),
                                .c = rpi_kernel_f32(io->grad_inputs[WEIGHT], k->size),
                                .accumulate = n > 0 || io->accumulate >> WEIGHT & 1u}));
    }
    return RP_OK;
}

/* ---- planning ---- */

bool rpi_dnn_conv_is_patches(const rpi_dnn_session *session, const rpi_unit *unit) {
    const rpi_conv2d_attributes *conv = unit->nodes[0]->attributes;
    const int64_t *weight = unit->inputs[WEIGHT].shape.size;
    return conv->stride > 1 && conv->padding == 0 && weight[2] == conv->stride &&
           weight[3] == conv->stride &&
           (unit->compute == RP_F32 || rpi_dnn_multiplies_itself(session));
}

static void describe(patches_kernel *k, const rpi_unit *unit, rpi_kernel *out) {
    const uint32_t weights = 1u << WEIGHT | 1u << BIAS;
    out->self = k;
    out->forward = forward;
    out->backward_inputs = unit->wanted >> INPUT & 1u ? backward_inputs : NULL;
    out->backward_weights = unit->wanted & weights ? backward_weights : NULL;
    out->destroy = destroy;
    out->needs_inputs = 1u << INPUT | 1u << WEIGHT;
    out->needs_outputs = 0;
    out->in_place_forward = out->in_place_backward = -1;
}

static void reserve(patches_kernel *k, size_t *bytes) {
    k->patches = rpi_dnn_reserve(bytes, (size_t)(k->count * k->size) * sizeof(float));
    k->scratch = rpi_dnn_reserve(bytes, k->is_bf16 ? rpi_kernel_matmul_workspace(&k->run)
                                                   : rpi_dnn_sgemm_workspace(&k->run));
}

rp_status rpi_dnn_conv_patches_plan(rpi_dnn_session *session, const rpi_unit *unit,
                                    rpi_kernel *out) {
    const int64_t *x = unit->inputs[INPUT].shape.size, *y = unit->outputs[0].shape.size;
    const int64_t side = unit->inputs[WEIGHT].shape.size[2];
    patches_kernel *k = NULL;
    RP_TRY(rpi_alloc(sizeof *k, "conv2d kernel of patches", &k));
    *k = (patches_kernel){.run = rpi_dnn_kernel_run(session),
                          .is_bf16 = unit->compute == RP_BF16,
                          .has_bias = unit->input_count > BIAS,
                          .images = x[0],
                          .channels = x[1],
                          .height = x[2],
                          .width = x[3],
                          .filters = y[1],
                          .side = side,
                          .rows = y[2],
                          .cols = y[3],
                          .count = y[2] * y[3],
                          .size = x[1] * side * side};
    describe(k, unit, out);
    out->inputs[INPUT] = out->grad_inputs[INPUT] =
        rpi_dnn_layout(session, &unit->inputs[INPUT].shape, RPI_DNN_PLAIN);
    reserve(k, &out->forward_workspace);
    reserve(k, &out->backward_workspace);
    return RP_OK;
}
