#include "engine/onednn/onednn_conv_shape.h"

enum { MOST_IN_BLOCK = 16 };

void rpi_dnn_conv_sum_bias(rpi_kernel_rows dy, int64_t images, int64_t filters, int64_t pixels,
                           int64_t block, bool accumulate, float *sums) {
    const int64_t blocks = (filters + block - 1) / block;
    for (int64_t at = 0; at < blocks; at++) {
        double sum[MOST_IN_BLOCK] = {0};
        for (int64_t n = 0; n < images; n++) {
            const int64_t plane = (n * blocks + at) * pixels * block;
            for (int64_t p = 0; p < pixels; p++)
                for (int64_t c = 0; c < block; c++)
                    sum[c] += (double)rpi_kernel_get(dy, 0, plane + p * block + c);
        }
        for (int64_t c = 0; c < block && at * block + c < filters; c++) {
            float *target = sums + at * block + c;
            *target = (float)(sum[c] + (accumulate ? (double)*target : 0));
        }
    }
}
