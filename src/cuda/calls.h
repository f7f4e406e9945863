/* What calls of a list ask for, whatever their kinds. Errors are those of CUDA's runtime. */
#ifndef RPI_CUDA_CALLS_H
#define RPI_CUDA_CALLS_H

#include "cuda/device_call.h"

#ifdef __cplusplus
extern "C" {
#endif

/* At most RPI_LIST_MOST calls; those that are alike are launched together. */
int rpi_calls_encode(const rpi_device_call *calls, int count, void *stream);
int rpi_calls_decode(const rpi_device_call *calls, int count, int adds, void *stream);
int rpi_calls_divide(const rpi_device_call *call, void *stream);
/* What rpi_calls_encode() needs as call->scratch. */
size_t rpi_calls_scratch(const rpi_device_call *call);
/* All kernels that operations use. */
int rpi_calls_load(void);

#ifdef __cplusplus
}
#endif

#endif
