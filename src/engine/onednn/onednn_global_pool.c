/* The mean over an image's pixels, read from the layout it lies in. */
#include "base/memory.h"
#include "base/status.h"
#include "engine/onednn/onednn_op.h"

#include <string.h>

extern const rpi_op rpi_op_global_avg_pool;
extern const rpi_dnn_op rpi_dnn_op_global_avg_pool;

enum { WIDEST_BLOCK = 16 };

typedef struct global_pool_kernel {
    int threads;
    int64_t batch, channels, pixels;
    /* Channels lie in `blocks` of `block` together, one pixel after the other; row-major is
     * blocks of one channel. */
    int64_t blocks, block;
} global_pool_kernel;

static void destroy(void *self) {
    rpi_free(self);
}

static int64_t channels_in(const global_pool_kernel *k, int64_t block) {
    int64_t left = k->channels - block * k->block;
    return left < k->block ? left : k->block;
}

static void average_row(const global_pool_kernel *k, const float *x, float *mean) {
    double sum = 0;
    for (int64_t p = 0; p < k->pixels; p++) sum += x[p];
    *mean = (float)(sum / (double)k->pixels);
}

static void average_block(const global_pool_kernel *k, const float *x, int64_t channels,
                          float *means) {
    double sums[WIDEST_BLOCK] = {0};
    for (int64_t p = 0; p < k->pixels; p++)
        for (int64_t c = 0; c < k->block; c++) sums[c] += x[p * k->block + c];
    for (int64_t c = 0; c < channels; c++) means[c] = (float)(sums[c] / (double)k->pixels);
}

static rp_status forward(void *self, const rpi_kernel_io *io) {
    const global_pool_kernel *k = self;
    const float *x = io->inputs[0];
    float *y = io->outputs[0];
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < k->batch * k->blocks; i++) {
        int64_t n = i / k->blocks, b = i % k->blocks;
        const float *plane = x + i * k->pixels * k->block;
        float *means = y + n * k->channels + b * k->block;
        if (k->block == 1)
            average_row(k, plane, means);
        else
            average_block(k, plane, channels_in(k, b), means);
    }
    return RP_OK;
}

/* Every pixel gets the gradient / pixels; padding channels get zero. */
static void spread(const global_pool_kernel *k, const float *grad, int64_t channels, bool add,
                   float *dx) {
    float share[WIDEST_BLOCK] = {0};
    for (int64_t c = 0; c < channels; c++) share[c] = grad[c] / (float)k->pixels;
    for (int64_t p = 0; p < k->pixels; p++)
        for (int64_t c = 0; c < k->block; c++) {
            float *target = &dx[p * k->block + c];
            *target = add ? *target + share[c] : share[c];
        }
}

static rp_status backward(void *self, const rpi_kernel_io *io) {
    const global_pool_kernel *k = self;
    const float *grad = io->grad_outputs[0];
    float *dx = io->grad_inputs[0];
    bool add = io->accumulate & 1u;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < k->batch * k->blocks; i++) {
        int64_t n = i / k->blocks, b = i % k->blocks;
        spread(k, grad + n * k->channels + b * k->block, channels_in(k, b), add,
               dx + i * k->pixels * k->block);
    }
    return RP_OK;
}

static rp_status plan(rpi_dnn_session *session, const rpi_unit *unit, rpi_kernel *out) {
    const rpi_unit_value *input = &unit->inputs[0];
    const int64_t *size = input->shape.size;
    int id = rpi_dnn_layout_for(input, input->layout.id);
    int64_t block = id == RPI_DNN_BLOCKED ? session->block : 1;
    global_pool_kernel *kernel = NULL;
    RP_TRY(rpi_alloc(sizeof *kernel, "global_avg_pool kernel", &kernel));
    *kernel = (global_pool_kernel){.threads = session->threads,
                                   .batch = size[0],
                                   .channels = size[1],
                                   .pixels = size[2] * size[3],
                                   .blocks = (size[1] + block - 1) / block,
                                   .block = block};
    out->self = kernel;
    out->forward = forward;
    out->backward_inputs = unit->wanted ? backward : NULL;
    out->accumulates = 1;
    out->destroy = destroy;
    out->inputs[0] = out->grad_inputs[0] = rpi_dnn_layout(session, &input->shape, id);
    return RP_OK;
}

const rpi_dnn_op rpi_dnn_op_global_avg_pool = {.op = &rpi_op_global_avg_pool, .plan = plan};
