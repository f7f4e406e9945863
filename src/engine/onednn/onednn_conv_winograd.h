/* Convolutions of 3 x 3 in f32 by our own Winograd kernel, over images in blocks of 16 channels
 * as they lie. oneDNN 2 has such too, which are slower, and oneDNN 3 has none. */
#ifndef RPI_ENGINE_ONEDNN_CONV_WINOGRAD_H
#define RPI_ENGINE_ONEDNN_CONV_WINOGRAD_H

#include "engine/onednn/onednn_session.h"

bool rpi_dnn_conv_is_winograd(const rpi_dnn_session *session, const rpi_unit *unit);
rp_status rpi_dnn_conv_winograd_plan(rpi_dnn_session *session, const rpi_unit *unit,
                                     rpi_kernel *out);

#endif
