/* Whole buckets with any number of bits. */
#include "cuda/quant_whole_kernels.h"

rpi_list_kernel rpi_quant_whole_any(const rpi_device_call *call) {
    return rpi_quant_whole<0>(call);
}
