#include "engine/onednn/onednn_norm.h"

void rpi_dnn_norm_update_running(const rpi_kernel_io *io, int64_t channels, int64_t samples,
                                 float momentum, const float *mean, const float *variance) {
    float *running_mean = io->inputs[RPI_DNN_NORM_MEAN];
    float *running_variance = io->inputs[RPI_DNN_NORM_VARIANCE];
    double part = momentum, count = (double)samples;
    double unbiased = count > 1 ? count / (count - 1) : 1.0;
    for (int64_t c = 0; c < channels; c++) {
        running_mean[c] = (float)((1 - part) * running_mean[c] + part * mean[c]);
        running_variance[c] =
            (float)((1 - part) * running_variance[c] + part * unbiased * variance[c]);
    }
}
