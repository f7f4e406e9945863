#include "engine/onednn/onednn_elementwise.h"

/* Not `x > 0 ? x : 0`: that is 0 for NaN. */
static inline float above_zero(float x) {
    return x < 0 ? 0 : x;
}

void rpi_dnn_relu(int threads, int64_t count, const float *x, float *y) {
#pragma omp parallel for simd num_threads(threads) schedule(static)
    for (int64_t i = 0; i < count; i++) y[i] = above_zero(x[i]);
}

void rpi_dnn_relu_backward(int threads, int64_t count, const float *y, const float *dy,
                           float *dx) {
#pragma omp parallel for simd num_threads(threads) schedule(static)
    for (int64_t i = 0; i < count; i++) {
        float open = dy[i]; /* read in any case, else there is a branch */
        dx[i] = y[i] <= 0 ? 0 : open;
    }
}

static void add(int threads, int64_t count, const float *a, const float *b, float *y) {
#pragma omp parallel for simd num_threads(threads) schedule(static)
    for (int64_t i = 0; i < count; i++) y[i] = a[i] + b[i];
}

static void add_relu(int threads, int64_t count, const float *a, const float *b, float *y) {
#pragma omp parallel for simd num_threads(threads) schedule(static)
    for (int64_t i = 0; i < count; i++) y[i] = above_zero(a[i] + b[i]);
}

void rpi_dnn_add(int threads, int64_t count, const float *a, const float *b, bool relu,
                 float *y) {
    if (relu)
        add_relu(threads, count, a, b, y);
    else
        add(threads, count, a, b, y);
}

static inline float normalised(const rpi_dnn_lanes *lanes, int lane, float x, bool relu) {
    float y = (x - lanes->mean[lane]) * lanes->factor[lane] + lanes->shift[lane];
    return relu ? above_zero(y) : y;
}

void rpi_dnn_normalise(const rpi_dnn_lanes *lanes, int64_t count, const float *x, bool relu,
                       float *y) {
    int64_t whole = count - count % RPI_DNN_LANES;
    for (int64_t i = 0; i < whole; i += RPI_DNN_LANES)
#pragma omp simd
        for (int lane = 0; lane < RPI_DNN_LANES; lane++)
            y[i + lane] = normalised(lanes, lane, x[i + lane], relu);
    for (int64_t i = whole; i < count; i++)
        y[i] = normalised(lanes, (int)(i - whole), x[i], relu);
}
