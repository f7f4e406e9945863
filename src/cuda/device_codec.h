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

/* How many places of an encoding decoding kernels must know: of its buckets, or runs; 0 where
 * its bytes do not vary. */
uint64_t rpi_device_places(const rpi_device_call *call);
/* These places: `out` has rpi_device_places() numbers. encoded: in memory of the host; it is
 * checked. RP_CORRUPT: no encoder can have written these bytes. */
rp_status rpi_device_offsets(const rp_codec *codec, rp_dtype dtype, size_t count,
                             const void *encoded, size_t bytes, uint64_t *out);

#endif
