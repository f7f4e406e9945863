#include "engine/layers.h"
#include "engine/reference/ref.h"

#include <math.h>

extern const rpi_op rpi_op_batch_norm2d;
extern const rpi_ref_op rpi_ref_batch_norm2d;

/* x: N x C x P, where P = H * W; count = N * P elements a channel. */
typedef struct sizes {
    int64_t images, channels, pixels;
    double count;
} sizes;

static sizes sizes_of(const rpi_unit *unit) {
    const int64_t *size = unit->inputs[0].shape.size;
    return (sizes){size[0], size[1], size[2] * size[3], (double)(size[0] * size[2] * size[3])};
}

static void batch_statistics(const float *x, sizes s, int64_t c, double *out_mean,
                             double *out_variance) {
    double sum = 0, squares = 0;
    for (int64_t n = 0; n < s.images; n++)
        for (int64_t p = 0; p < s.pixels; p++)
            sum += (double)x[(n * s.channels + c) * s.pixels + p];
    double mean = sum / s.count;
    for (int64_t n = 0; n < s.images; n++)
        for (int64_t p = 0; p < s.pixels; p++) {
            double centred = (double)x[(n * s.channels + c) * s.pixels + p] - mean;
            squares += centred * centred;
        }
    *out_mean = mean;
    *out_variance = squares / s.count;
}

static void normalise(const float *x, float *y, sizes s, int64_t c, double mean, double factor,
                      double shift) {
    for (int64_t n = 0; n < s.images; n++)
        for (int64_t p = 0; p < s.pixels; p++) {
            int64_t i = (n * s.channels + c) * s.pixels + p;
            y[i] = (float)(((double)x[i] - mean) * factor + shift);
        }
}

static void update_states(const rpi_kernel_io *io, double momentum, sizes s, int64_t c,
                          double mean, double variance) {
    float *running_mean = io->inputs[3], *running_variance = io->inputs[4];
    double unbiased = s.count > 1 ? variance * s.count / (s.count - 1) : variance;
    running_mean[c] = (float)((1 - momentum) * (double)running_mean[c] + momentum * mean);
    running_variance[c] =
        (float)((1 - momentum) * (double)running_variance[c] + momentum * unbiased);
}

static rp_status forward(const rpi_unit *unit, const rpi_kernel_io *io) {
    const rpi_batch_norm2d_attributes *norm = unit->nodes[0]->attributes;
    const float *x = io->inputs[0], *scale = io->inputs[1], *shift = io->inputs[2];
    const float *running_mean = io->inputs[3], *running_variance = io->inputs[4];
    float *saved = io->saved;
    sizes s = sizes_of(unit);
    for (int64_t c = 0; c < s.channels; c++) {
        double mean = (double)running_mean[c], variance = (double)running_variance[c];
        if (unit->training) {
            batch_statistics(x, s, c, &mean, &variance);
            if (!io->repeats) update_states(io, (double)norm->momentum, s, c, mean, variance);
        }
        double inverse = 1 / sqrt(variance + (double)norm->epsilon);
        double factor = (double)scale[c] * inverse;
        normalise(x, io->outputs[0], s, c, mean, factor, (double)shift[c]);
        if (saved) {
            saved[c] = (float)mean;
            saved[s.channels + c] = (float)inverse;
        }
    }
    return RP_OK;
}

/* With z = (x - mean) * inverse:
 *   dshift = sum dy, dscale = sum dy z, dx = scale inverse (dy - (dshift + z dscale) / count)
 */
static rp_status backward(const rpi_unit *unit, const rpi_kernel_io *io) {
    const float *x = io->inputs[0], *scale = io->inputs[1], *dy = io->grad_outputs[0];
    const float *saved = io->saved;
    float *dx = io->grad_inputs[0];
    sizes s = sizes_of(unit);
    for (int64_t c = 0; c < s.channels; c++) {
        double mean = (double)saved[c], inverse = (double)saved[s.channels + c];
        double dshift = 0, dscale = 0;
        for (int64_t n = 0; n < s.images; n++)
            for (int64_t p = 0; p < s.pixels; p++) {
                int64_t i = (n * s.channels + c) * s.pixels + p;
                dshift += (double)dy[i];
                dscale += (double)dy[i] * ((double)x[i] - mean) * inverse;
            }
        if (io->grad_inputs[1]) rpi_ref_store(io, 1, c, dscale);
        if (io->grad_inputs[2]) rpi_ref_store(io, 2, c, dshift);
        for (int64_t n = 0; dx && n < s.images; n++)
            for (int64_t p = 0; p < s.pixels; p++) {
                int64_t i = (n * s.channels + c) * s.pixels + p;
                double z = ((double)x[i] - mean) * inverse;
                dx[i] = (float)((double)scale[c] * inverse *
                                ((double)dy[i] - (dshift + z * dscale) / s.count));
            }
    }
    return RP_OK;
}

const rpi_ref_op rpi_ref_batch_norm2d = {
    .op = &rpi_op_batch_norm2d, .forward = forward, .backward = backward, .at_once = true};
