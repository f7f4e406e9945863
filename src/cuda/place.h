/* Where memory lies, asked of the GPU's driver and not of its runtime, whose call opens the
 * first GPU of the host, for hundreds of megabytes of it, where the thread has chosen none. */
#ifndef RPI_CUDA_PLACE_H
#define RPI_CUDA_PLACE_H

#include "cuda/cuda_library.h"

#include <stddef.h>

/* Functions of libcuda.so.1, by their names there; errors are those of the runtime. */
typedef struct rpi_driver_calls {
    int (*cuPointerGetAttribute)(void *out, int attribute, unsigned long long address);
    int (*cuDevicePrimaryCtxGetState)(int device, unsigned *flags, int *active);
    int (*cuDevicePrimaryCtxRetain)(void **context, int device);
    int (*cuDevicePrimaryCtxRelease)(int device);
} rpi_driver_calls;

/* Of cuda.h, which an installation without nvcc has not. */
enum { RPI_POINTER_CONTEXT = 1, RPI_POINTER_TYPE = 2, RPI_POINTER_IS_MANAGED = 8 };
enum { RPI_POINTER_DEVICE = 9, RPI_TYPE_DEVICE = 2, RPI_ERROR_INVALID_VALUE = 1 };

/* Kernels run in the primary context of a GPU, which has no addresses of another one. Memory of
 * a pool or of mapped pieces has none of its own (NULL), and is everybody's. */
static inline int rpi_place_is_foreign(const rpi_driver_calls *calls, unsigned long long at,
                                       int device) {
    void *owner = NULL, *primary = NULL;
    unsigned flags = 0;
    int active = 0;
    if (calls->cuPointerGetAttribute(&owner, RPI_POINTER_CONTEXT, at) || !owner) return 0;
    if (calls->cuDevicePrimaryCtxGetState(device, &flags, &active)) return 0;
    if (!active) return 1; /* asking for it would open it */
    if (calls->cuDevicePrimaryCtxRetain(&primary, device)) return 0;
    (void)calls->cuDevicePrimaryCtxRelease(device);
    return owner != primary;
}

/* As device_of() of the table. What the driver does not know is the host's. */
static inline int rpi_place_of(const rpi_driver_calls *calls, const void *memory,
                               int *out_device) {
    unsigned long long at = (unsigned long long)(uintptr_t)memory;
    unsigned type = 0, managed = 0;
    int device = 0;
    *out_device = RPI_CUDA_HOST;
    int error = calls->cuPointerGetAttribute(&type, RPI_POINTER_TYPE, at);
    if (error == RPI_ERROR_INVALID_VALUE) return 0;
    if (error) return error;
    if (calls->cuPointerGetAttribute(&managed, RPI_POINTER_IS_MANAGED, at)) managed = 0;
    if (type != RPI_TYPE_DEVICE && !(managed & 0xffu)) return 0; /* pinned */
    error = calls->cuPointerGetAttribute(&device, RPI_POINTER_DEVICE, at);
    if (error) return error;
    *out_device = rpi_place_is_foreign(calls, at, device) ? RPI_CUDA_FOREIGN : device;
    return 0;
}

#endif
