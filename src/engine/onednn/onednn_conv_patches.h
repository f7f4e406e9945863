/* Convolutions whose windows lie side by side (the stride is the window: a vision transformer's
 * patches). They are matrix products of patches, for which oneDNN 2 has reference code only in
 * the gradient of the weight: ten seconds an image with patches of 16 x 16. */
#ifndef RPI_ENGINE_ONEDNN_CONV_PATCHES_H
#define RPI_ENGINE_ONEDNN_CONV_PATCHES_H

#include "engine/onednn/onednn_session.h"

bool rpi_dnn_conv_is_patches(const rpi_dnn_session *session, const rpi_unit *unit);
rp_status rpi_dnn_conv_patches_plan(rpi_dnn_session *session, const rpi_unit *unit,
                                    rpi_kernel *out);

#endif
