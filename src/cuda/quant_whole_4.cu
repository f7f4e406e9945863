/* Whole buckets with 4 bits. */
#include "cuda/quant_whole_kernels.h"

rpi_list_kernel rpi_quant_whole_4(const rpi_device_call *call) {
    return rpi_quant_whole<4>(call);
}
