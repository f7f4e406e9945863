/* image_tokens and select_token: copies, the same on every instruction set. */
#include "engine/backends/cpu/cpu_op.h"
#include "engine/layers.h"

#include <string.h>

extern const rpi_op rpi_op_image_tokens, rpi_op_select_token;
extern const rpi_cpu_op rpi_cpu_image_tokens, rpi_cpu_select_token;

/* ---- images ---- */

/* images: N x channels x pixels, tokens: N x (classes + pixels) x channels, classes being 1
 * where there is a class token. One of the two is written. */
typedef struct transposition {
    int64_t images, channels, pixels, classes;
    float *image, *tokens;
    bool to_tokens;
} transposition;

enum { TILE = 16 }; /* pixels by channels that stay in the first cache */

static transposition transposition_of(const rpi_unit *unit) {
    const int64_t *size = unit->inputs[0].shape.size;
    return (transposition){.images = size[0],
                           .channels = size[1],
                           .pixels = size[2] * size[3],
                           .classes = unit->input_count > 1};
}

static void transpose_tile(const transposition *it, int64_t image, int64_t channel,
                           int64_t pixel) {
    int64_t last_channel = channel + TILE < it->channels ? channel + TILE : it->channels;
    int64_t last_pixel = pixel + TILE < it->pixels ? pixel + TILE : it->pixels;
    for (int64_t c = channel; c < last_channel; c++) {
        float *row = it->image + (image * it->channels + c) * it->pixels;
        float *column =
            it->tokens + (image * (it->classes + it->pixels) + it->classes) * it->channels + c;
        for (int64_t p = pixel; p < last_pixel; p++) {
            if (it->to_tokens)
                column[p * it->channels] = row[p];
            else
                row[p] = column[p * it->channels];
        }
    }
}

/* Units are images. */
static void transpose_images(const void *args, int64_t begin, int64_t end) {
    const transposition *it = args;
    for (int64_t n = begin; n < end; n++)
        for (int64_t c = 0; c < it->channels; c += TILE)
            for (int64_t p = 0; p < it->pixels; p += TILE) transpose_tile(it, n, c, p);
}

static void transpose(const rpi_kernel_run *run, const transposition *it) {
    static const rpi_kernel_body bodies[] = {transpose_images, transpose_images,
                                             transpose_images};
    rpi_kernel_parallel(run, it->images, 1, bodies, it);
}

static rp_status make_tokens(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    transposition it = transposition_of(&kernel->unit);
    it.image = io->inputs[0];
    it.tokens = io->outputs[0];
    it.to_tokens = true;
    int64_t stride = (it.classes + it.pixels) * it.channels;
    for (int64_t n = 0; it.classes && n < it.images; n++)
        memcpy(it.tokens + n * stride, io->inputs[1], (size_t)it.channels * sizeof(float));
    transpose(&kernel->run, &it);
    return RP_OK;
}

static void class_gradient(const transposition *it, bool accumulate, float *gradient) {
    int64_t stride = (it->classes + it->pixels) * it->channels;
    for (int64_t c = 0; c < it->channels; c++) {
        double sum = accumulate ? (double)gradient[c] : 0;
        for (int64_t n = 0; n < it->images; n++) sum += (double)it->tokens[n * stride + c];
        gradient[c] = (float)sum;
    }
}

static rp_status make_tokens_backward(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    transposition it = transposition_of(&kernel->unit);
    it.image = io->grad_inputs[0];
    it.tokens = (float *)io->grad_outputs[0];
    if (it.image) transpose(&kernel->run, &it);
    if (io->grad_inputs[1]) class_gradient(&it, rpi_cpu_accumulates(io, 1), io->grad_inputs[1]);
    return RP_OK;
}

const rpi_cpu_op rpi_cpu_image_tokens = {
    .op = &rpi_op_image_tokens, .forward = make_tokens, .backward = make_tokens_backward};

/* ---- one token of each sequence ---- */

static rp_status select_token(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    const rpi_select_token_attributes *select = kernel->unit.nodes[0]->attributes;
    const int64_t *size = kernel->unit.inputs[0].shape.size;
    const float *x = io->inputs[0];
    float *y = io->outputs[0];
    for (int64_t n = 0; n < size[0]; n++)
        memcpy(y + n * size[2], x + (n * size[1] + select->index) * size[2],
               (size_t)size[2] * sizeof *y);
    return RP_OK;
}

static rp_status select_token_backward(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    const rpi_select_token_attributes *select = kernel->unit.nodes[0]->attributes;
    const int64_t *size = kernel->unit.inputs[0].shape.size;
    const float *dy = io->grad_outputs[0];
    float *dx = io->grad_inputs[0];
    memset(dx, 0, (size_t)rpi_shape_count(&kernel->unit.inputs[0].shape) * sizeof *dx);
    for (int64_t n = 0; n < size[0]; n++)
        memcpy(dx + (n * size[1] + select->index) * size[2], dy + n * size[2],
               (size_t)size[2] * sizeof *dx);
    return RP_OK;
}

const rpi_cpu_op rpi_cpu_select_token = {
    .op = &rpi_op_select_token, .forward = select_token, .backward = select_token_backward};
