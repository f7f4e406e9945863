/* Which algorithm for which convolution.
 *
 * Winograd F(4x4, 3x3) needs a quarter of the multiplications and some more memory traffic, so
 * it wins where there is enough work, and rounds to about 1e-6 where direct sums round to 1e-7.
 * It is our own kernel (onednn_conv_winograd.c); all else is oneDNN's direct sums. The shape
 * alone decides, so that every run and every rank decides alike. */
#ifndef RPI_ENGINE_ONEDNN_ALGORITHM_H
#define RPI_ENGINE_ONEDNN_ALGORITHM_H

#include "engine/onednn/onednn_session.h"

typedef struct rpi_dnn_geometry {
    rpi_dnn_direction direction;
    int64_t batch, channels, height, width; /* of the input */
    int64_t filters, window_height, window_width;
    int stride, padding;
    bool is_bf16; /* what it reads */
    int threads;
} rpi_dnn_geometry;

/* In words: "2 forward n64 c64 h28 w28 k64 r3 s3 stride1 padding1 threads2", the first number
 * being oneDNN's major version; behind "threads2" there is " bf16" where it is. */
enum { RPI_DNN_GEOMETRY_TEXT = 256 };
void rpi_dnn_geometry_text(const rpi_dnn_geometry *geometry, char text[RPI_DNN_GEOMETRY_TEXT]);

/* Is it one for Winograd, and is that quicker? */
bool rpi_dnn_winograd_fits(const rpi_dnn_geometry *geometry);
bool rpi_dnn_winograd_pays(const rpi_dnn_geometry *geometry);

/* Does oneDNN have nothing but reference code for `conv` in this direction? */
rp_status rpi_dnn_conv_lacks_kernel(const rpi_dnn_session *session, rpi_dnn_direction direction,
                                    const rpi_dnn_conv *conv, bool *out_lacks);

/* oneDNN's kernel for `conv`; the log names it where it is slow. RP_UNSUPPORTED without a
 * message: there is none. */
rp_status rpi_dnn_conv_choose(const rpi_dnn_session *session, const rpi_dnn_geometry *geometry,
                              const rpi_dnn_conv *conv, dnnl_primitive_desc_t *out_pd);

#endif
