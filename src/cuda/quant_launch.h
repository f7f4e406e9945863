/* q1 to q8 by files, which are compiled side by side: the kernel for a call, by what it is
 * asked for. */
#ifndef RPI_CUDA_QUANT_LAUNCH_H
#define RPI_CUDA_QUANT_LAUNCH_H

#include "cuda/group.h"

/* A warp keeps a bucket in registers, of which a lane has so many octets. */
static inline bool rpi_quant_is_held(const rpi_device_call *call, int octets) {
    return call->bucket <= (uint64_t)octets * RPI_WARP * RPI_OCTET;
}

/* A warp holds no bucket beyond this one: it would read it twice, and is no match for a block
 * there. */
static inline int rpi_quant_encode_lanes(const rpi_device_call *call) {
    return rpi_quant_is_held(call, RPI_QUANT_HELD) ? (int)RPI_WARP : (int)RPI_BLOCK;
}

/* Whole buckets (quant_whole_lanes.h), with 4 and 8 bits as a constant, and any; NULL: they are
 * not whole. */
rpi_list_kernel rpi_quant_whole_4(const rpi_device_call *call);
rpi_list_kernel rpi_quant_whole_8(const rpi_device_call *call);
rpi_list_kernel rpi_quant_whole_any(const rpi_device_call *call);
/* Any buckets, rounded to the nearest level. */
rpi_list_kernel rpi_quant_nearest(const rpi_device_call *call);
rpi_list_kernel rpi_quant_stochastic(const rpi_device_call *call);
rpi_list_kernel rpi_quant_decoder(const rpi_device_call *call, int adds);

#endif
