/* The table by which libredpoll_cuda.so is called: the one thing that it exports. It is a
 * shared object of its own, opened when a driver is there, so that neither programs nor
 * libredpoll link CUDA.
 *
 * Numbers that are returned are cudaError_t: 0 is success. A stream is a cudaStream_t, NULL the
 * default one. Nothing waits for the device but wait() and what says so. Any thread may call.
 */
#ifndef RPI_CUDA_CUDA_LIBRARY_H
#define RPI_CUDA_CUDA_LIBRARY_H

#include "cuda/device_call.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Raised with every change of this file or of rpi_device_call. */
enum { RPI_CUDA_INTERFACE = 2 };
#define RPI_CUDA_ENTRY "rpi_cuda_library_table"

typedef struct rpi_cuda_library {
    int interface;     /* RPI_CUDA_INTERFACE */
    size_t call_bytes; /* of rpi_device_call */
    int runtime;       /* 13000: CUDA 13.0 */
    const char *architectures;

    int (*driver)(int *version); /* as `runtime`; 0: there is none */
    int (*devices)(int *count);
    /* "NVIDIA H100 80GB HBM3", of the device that this thread uses. */
    int (*device_name)(char *text, size_t bytes);
    const char *(*error_name)(int error);
    const char *(*error_text)(int error);

    /* Begin on the stream. x, residual and y: memory of the device or pinned memory of the
     * host, aligned for their elements; encoded: either, at any address. */
    int (*encode)(const rpi_device_call *call, void *stream);
    /* adds: y are floats, to which the values are added. */
    int (*decode)(const rpi_device_call *call, int adds, void *stream);

    int (*allocate)(size_t bytes, void **out); /* of the device */
    int (*release)(void *memory);
    int (*pin)(size_t bytes, void **out); /* memory of the host */
    int (*unpin)(void *memory);
    int (*copy)(void *to, const void *from, size_t bytes, void *stream);
    int (*wait)(void *stream);
    /* Places in a stream, whose distance is told in seconds: end is waited for. */
    int (*event_make)(void **out);
    void (*event_free)(void *event);
    int (*event_record)(void *event, void *stream);
    int (*event_seconds)(void *begin, void *end, double *out);
} rpi_cuda_library;

typedef const rpi_cuda_library *(*rpi_cuda_entry)(void);

#ifdef __cplusplus
}
#endif
#endif
