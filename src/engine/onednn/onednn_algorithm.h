/* A convolution in one direction, by the algorithm that suits its shape. */
#ifndef RPI_ENGINE_ONEDNN_ALGORITHM_H
#define RPI_ENGINE_ONEDNN_ALGORITHM_H

#include "engine/onednn/onednn_session.h"
#include "engine/onednn/onednn_tuning.h"

/* Does oneDNN have nothing but reference code for `conv` in this direction? */
rp_status rpi_dnn_conv_lacks_kernel(const rpi_dnn_session *session, rpi_dnn_direction direction,
                                    const rpi_dnn_conv *conv, bool *out_lacks);

/* Describe `conv`, whose `winograd` is set to what was chosen. RP_UNSUPPORTED without a
 * message: oneDNN has no implementation. */
rp_status rpi_dnn_conv_choose(rpi_dnn_session *session, const rpi_dnn_geometry *geometry,
                              rpi_dnn_conv *conv, dnnl_primitive_desc_t *out_pd);

#endif
