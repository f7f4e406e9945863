/* Loops over flat arrays, blind to the layout: what oneDNN has for these makes 0 of NaN, its
 * ReLU by design, and with it every primitive that fuses one.
 *
 * An output may be an input. The padding of blocked layouts is zero and stays so. */
#ifndef RPI_ENGINE_ONEDNN_ELEMENTWISE_H
#define RPI_ENGINE_ONEDNN_ELEMENTWISE_H

#include <stdbool.h>
#include <stdint.h>

/* y = max(x, 0) */
void rpi_dnn_relu(int threads, int64_t count, const float *x, float *y);
/* dx = dy where y is above 0 or NaN, else 0 */
void rpi_dnn_relu_backward(int threads, int64_t count, const float *y, const float *dy,
                           float *dx);
/* y = a + b, or max(a + b, 0) */
void rpi_dnn_add(int threads, int64_t count, const float *a, const float *b, bool relu,
                 float *y);

/* What normalises the elements of a plane: that of index i belongs to lane i mod 16. */
enum { RPI_DNN_LANES = 16 };
typedef struct rpi_dnn_lanes {
    float mean[RPI_DNN_LANES], factor[RPI_DNN_LANES], shift[RPI_DNN_LANES];
} rpi_dnn_lanes;

/* y = factor (x - mean) + shift, or the maximum of that and 0; on the calling thread. */
void rpi_dnn_normalise(const rpi_dnn_lanes *lanes, int64_t count, const float *x, bool relu,
                       float *y);

#endif
