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
enum { RPI_CUDA_INTERFACE = 8 };
/* What device_of() says of memory that is not a GPU's, or of a context of its own there. */
enum { RPI_CUDA_HOST = -1, RPI_CUDA_FOREIGN = -2 };
#define RPI_CUDA_ENTRY "rpi_cuda_library_table"

/* What a thread used before enter(). */
typedef struct rpi_cuda_before {
    void *context;
    int capture_mode;
} rpi_cuda_before;

typedef struct rpi_cuda_library {
    int interface;             /* RPI_CUDA_INTERFACE */
    size_t call_bytes;         /* of rpi_device_call */
    int runtime;               /* 13000: CUDA 13.0 */
    const char *architectures; /* that there are kernels for: capability.h */

    int (*driver)(int *version); /* as `runtime`; 0: there is none */
    int (*devices)(int *count);
    /* "NVIDIA H100 80GB HBM3", of the device that this thread uses. */
    int (*device_name)(char *text, size_t bytes);
    const char *(*error_name)(int error);
    const char *(*error_text)(int error);

    /* Of an encoding's scratch memory; 0: it needs none. */
    int (*scratch_bytes)(const rpi_device_call *call, size_t *out);
    /* Begin on the stream. x, residual and y: memory of the device or pinned memory of the
     * host, aligned for their elements; encoded: either, at any address. */
    int (*encode)(const rpi_device_call *call, void *stream);
    /* adds: y are floats, to which the values are added. */
    int (*decode)(const rpi_device_call *call, int adds, void *stream);
    /* The same of up to 64 calls that do not depend on each other, in any order: one launch for
     * those of one kernel (device_list.h). */
    int (*encode_all)(const rpi_device_call *calls, int count, void *stream);
    int (*decode_all)(const rpi_device_call *calls, int count, int adds, void *stream);
    /* y: count floats, each becomes what it is divided by `divisor`. */
    int (*divide)(const rpi_device_call *call, void *stream);

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

    /* 75: of compute capability 7.5. Opens no GPU. */
    int (*capability)(int device, int *out);
    /* All kernels that operations use, on the GPU that this thread uses: what is loaded later
     * may wait for all that the GPU is at, as another library's kernel that waits for a peer.
     */
    int (*load)(void);

    /* GPUs are numbered as CUDA_VISIBLE_DEVICES lists them. Each thread uses one: kernels go
     * there, streams and events are made there; and any call of a thread that has chosen none
     * opens the first one, for hundreds of megabytes of it. */
    int (*device_set)(int device);
    /* The thread uses this one until leave(), which gives it what it had, none too. Between the
     * two another thread may capture a graph, which these calls neither disturb nor join. */
    int (*enter)(int device, rpi_cuda_before *before);
    void (*leave)(const rpi_cuda_before *before);
    /* Where memory lies; RPI_CUDA_HOST: with the host, pinned or not. RPI_CUDA_FOREIGN: on a
     * GPU, in a context that kernels of ours cannot reach. Of a thread that has chosen no GPU,
     * too: it opens none. */
    int (*device_of)(const void *memory, int *device);
    /* Beside the default stream: neither waits for the other. Of the highest priority: what is
     * in it is short, and comes before blocks of others that have not begun. */
    int (*stream_make)(void **out);
    /* Of the lowest priority, for what only waits: it shares no queue of the GPU with those. */
    int (*waiter_make)(void **out);
    void (*stream_free)(void *stream); /* what is in it is done all the same */
    /* What is put into the stream from now on begins once the event, as it was recorded last,
     * has come. */
    int (*stream_wait_for)(void *stream, void *event);
    /* call(context) on a thread of the driver's, when the stream has come there. What is behind
     * it in the stream waits for its return, and it may call nothing of this table. */
    int (*stream_call)(void *stream, void (*call)(void *), void *context);
    /* An event without a time, which costs less: only event_record(), event_done(),
     * stream_wait_for() and event_free() take it. */
    int (*mark_make)(void **out);
    /* *done: 1 when all is done that was in the stream before the event, else 0. Not waited
     * for. */
    int (*event_done)(void *event, int *done);
    /* Whether what is put into the stream is recorded into a graph, and not done. */
    int (*is_captured)(void *stream, int *captured);
} rpi_cuda_library;

typedef const rpi_cuda_library *(*rpi_cuda_entry)(void);

#ifdef __cplusplus
}
#endif
#endif
