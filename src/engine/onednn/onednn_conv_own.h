/* Convolutions in bf16 on processors with AMX, over images of f32 or bf16 in blocks of 16
 * channels as they lie: sums of matrix products, one for each place of the window, whose rows
 * are pixels. What they read is rounded as it is packed, so that no copy of an image is made.
 */
#ifndef RPI_ENGINE_ONEDNN_CONV_OWN_H
#define RPI_ENGINE_ONEDNN_CONV_OWN_H

#include "engine/onednn/onednn_session.h"

bool rpi_dnn_conv_is_own(const rpi_dnn_session *session, const rpi_unit *unit);
rp_status rpi_dnn_conv_own_plan(rpi_dnn_session *session, const rpi_unit *unit,
                                rpi_kernel *out);

#endif
