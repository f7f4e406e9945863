/* q1 to q8: which kernel does a call, and its launch. */
#include "cuda/quant_launch.h"

static rpi_list_kernel encoder(const rpi_device_call *call) {
    if (call->stochastic) return rpi_quant_stochastic(call);
    rpi_list_kernel whole = call->bits == 4   ? rpi_quant_whole_4(call)
                            : call->bits == 8 ? rpi_quant_whole_8(call)
                                              : rpi_quant_whole_any(call);
    return whole ? whole : rpi_quant_nearest(call);
}

cudaError_t rpi_quant_launch_encode(rpi_device_list *list, cudaStream_t stream) {
    const rpi_device_call *first = &list->call[0];
    return rpi_group_launch_by(rpi_quant_encode_lanes(first), encoder(first), list, stream);
}

cudaError_t rpi_quant_launch_decode(rpi_device_list *list, int adds, cudaStream_t stream) {
    return rpi_group_launch(rpi_quant_decoder(&list->call[0], adds), list, stream);
}
