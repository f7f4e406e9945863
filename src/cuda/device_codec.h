/* Codecs on a GPU. The bytes are those of docs/codecs.md, as on the CPU. */
#ifndef RPI_CUDA_DEVICE_CODEC_H
#define RPI_CUDA_DEVICE_CODEC_H

#include "cuda/device_call.h"
#include "redpoll/codec.h"

#include <stdbool.h>

/* What kernels need to know of an encoding or decoding, without the places of elements and
 * bytes. context: as for rp_codec_encode(), with a residual that lies on the device. count: at
 * least 1. RP_UNSUPPORTED: no kernels for this codec or these elements. RP_INVALID: as there.
 */
rp_status rpi_device_call_of(const rp_codec *codec, rp_dtype dtype, size_t count,
                             const rp_encode_context *context, rpi_device_call *out);

#endif
