/* Batch normalisation in training, of channels that fill blocks of 16: by our own kernel, with
 * the sum and the relu of a residual block where they stand behind it. In bf16 it keeps what it
 * makes rounded. */
#ifndef RPI_ENGINE_ONEDNN_NORM_H
#define RPI_ENGINE_ONEDNN_NORM_H

#include "engine/onednn/onednn_session.h"

enum {
    RPI_DNN_NORM_INPUT,
    RPI_DNN_NORM_SCALE,
    RPI_DNN_NORM_SHIFT,
    RPI_DNN_NORM_MEAN, /* running ones */
    RPI_DNN_NORM_VARIANCE,
    RPI_DNN_NORM_ADDEND /* where a sum is fused */
};

/* state = (1 - momentum) state + momentum batch, over `samples` elements a channel; the
 * variance becomes the unbiased one. */
void rpi_dnn_norm_update_running(const rpi_kernel_io *io, int64_t channels, int64_t samples,
                                 float momentum, const float *mean, const float *variance);

/* May our own kernel run the unit, wherever its input lies? Then a sum may join it. */
bool rpi_dnn_norm_may_be_own(const rpi_unit *unit);
bool rpi_dnn_norm_is_own(const rpi_dnn_session *session, const rpi_unit *unit);
rp_status rpi_dnn_norm_own_plan(rpi_dnn_session *session, const rpi_unit *unit,
                                rpi_kernel *out);

#endif
