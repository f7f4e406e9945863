/* libredpoll_cuda.so: the table of cuda_library.h over the CUDA runtime, which is linked
 * statically and looks for a driver when it is first asked something. */
#include "cuda/cuda_library.h"

#include "cuda/calls.h"
#include "cuda/kernels.h"
#include "cuda/place.h"

#include <dlfcn.h>
#include <stdio.h>

static int driver(int *version) {
    return cudaDriverGetVersion(version);
}

static int devices(int *count) {
    return cudaGetDeviceCount(count);
}

static int device_name(char *text, size_t bytes) {
    int device = 0;
    cudaDeviceProp properties;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, device);
    if (error == cudaSuccess) snprintf(text, bytes, "%s", properties.name);
    return error;
}

static int capability(int device, int *out) {
    int major = 0, minor = 0;
    cudaError_t error =
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    *out = 10 * major + minor;
    return error;
}

static const char *error_name(int error) {
    return cudaGetErrorName((cudaError_t)error);
}

static const char *error_text(int error) {
    return cudaGetErrorString((cudaError_t)error);
}

static int scratch_bytes(const rpi_device_call *call, size_t *out) {
    *out = rpi_calls_scratch(call);
    return cudaSuccess;
}

static int encode(const rpi_device_call *call, void *stream) {
    return rpi_calls_encode(call, 1, stream);
}

static int decode(const rpi_device_call *call, int adds, void *stream) {
    return rpi_calls_decode(call, 1, adds, stream);
}

/* ---- memory, events and streams ---- */

static int allocate(size_t bytes, void **out) {
    return cudaMalloc(out, bytes);
}

static int release(void *memory) {
    return cudaFree(memory);
}

static int pin(size_t bytes, void **out) {
    return cudaMallocHost(out, bytes);
}

static int unpin(void *memory) {
    return cudaFreeHost(memory);
}

static int copy(void *to, const void *from, size_t bytes, void *stream) {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, (cudaStream_t)stream);
}

static int wait(void *stream) {
    return cudaStreamSynchronize((cudaStream_t)stream);
}

static int event_make(void **out) {
    return cudaEventCreate((cudaEvent_t *)out);
}

static void event_free(void *event) {
    if (event) (void)cudaEventDestroy((cudaEvent_t)event);
}

static int event_record(void *event, void *stream) {
    return cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream);
}

static int event_seconds(void *begin, void *end, double *out) {
    float milliseconds = 0;
    cudaError_t error = cudaEventSynchronize((cudaEvent_t)end);
    if (error == cudaSuccess)
        error = cudaEventElapsedTime(&milliseconds, (cudaEvent_t)begin, (cudaEvent_t)end);
    *out = 1e-3 * milliseconds;
    return error;
}

static int device_set(int device) {
    return cudaSetDevice(device);
}

namespace {
/* The runtime has no call for "the device of this thread, or none": cudaGetDevice() answers 0
 * where it has none, and setting that again would open it. The driver's library is there, as
 * the runtime has found it. */
struct of_driver {
    int (*get)(void **context), (*set)(void *context);
    rpi_driver_calls place;
};
} // namespace

template <typename CALL> static bool find_call(void *driver, const char *name, CALL *out) {
    *out = (CALL)dlsym(driver, name);
    return *out != NULL;
}

/* All or none. */
static of_driver find_driver() {
    of_driver calls = {}, none = {};
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    bool all =
        driver && find_call(driver, "cuCtxGetCurrent", &calls.get) &&
        find_call(driver, "cuCtxSetCurrent", &calls.set) &&
        find_call(driver, "cuPointerGetAttribute", &calls.place.cuPointerGetAttribute) &&
        find_call(driver, "cuDevicePrimaryCtxGetState",
                  &calls.place.cuDevicePrimaryCtxGetState) &&
        find_call(driver, "cuDevicePrimaryCtxRetain", &calls.place.cuDevicePrimaryCtxRetain) &&
        find_call(driver, "cuDevicePrimaryCtxRelease_v2",
                  &calls.place.cuDevicePrimaryCtxRelease);
    return all ? calls : none;
}

static const of_driver &calls_of_driver() {
    static const of_driver calls = find_driver();
    return calls;
}

static int enter(int device, rpi_cuda_before *before) {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    before->context = NULL;
    before->capture_mode = cudaStreamCaptureModeGlobal;
    if (!calls_of_driver().get) return cudaErrorInsufficientDriver;
    (void)calls_of_driver().get(
        &before->context); /* NULL where the driver has not been begun */
    cudaError_t error = cudaSetDevice(device);
    if (error == cudaSuccess) error = cudaThreadExchangeStreamCaptureMode(&mode);
    if (error == cudaSuccess)
        before->capture_mode = mode;
    else
        (void)calls_of_driver().set(before->context);
    return error;
}

static void leave(const rpi_cuda_before *before) {
    cudaStreamCaptureMode mode = (cudaStreamCaptureMode)before->capture_mode;
    (void)cudaThreadExchangeStreamCaptureMode(&mode);
    (void)calls_of_driver().set(before->context);
}

static int device_of(const void *memory, int *device) {
    if (!calls_of_driver().get) return cudaErrorInsufficientDriver;
    return rpi_place_of(&calls_of_driver().place, memory, device);
}

static int make_stream(bool is_urgent, void **out) {
    int least = 0, greatest = 0;
    cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (error != cudaSuccess) return error;
    return cudaStreamCreateWithPriority((cudaStream_t *)out, cudaStreamNonBlocking,
                                        is_urgent ? greatest : least);
}

static int stream_make(void **out) {
    return make_stream(true, out);
}

static int waiter_make(void **out) {
    return make_stream(false, out);
}

static void stream_free(void *stream) {
    if (stream) (void)cudaStreamDestroy((cudaStream_t)stream);
}

static int stream_wait_for(void *stream, void *event) {
    return cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)event, 0);
}

static int stream_call(void *stream, void (*call)(void *), void *context) {
    return cudaLaunchHostFunc((cudaStream_t)stream, call, context);
}

static int mark_make(void **out) {
    return cudaEventCreateWithFlags((cudaEvent_t *)out, cudaEventDisableTiming);
}

static int event_done(void *event, int *done) {
    cudaError_t error = cudaEventQuery((cudaEvent_t)event);
    *done = error == cudaSuccess;
    return error == cudaErrorNotReady ? cudaSuccess : error;
}

static int is_captured(void *stream, int *captured) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaError_t error = cudaStreamIsCapturing((cudaStream_t)stream, &status);
    /* The default stream while another one is captured: what is put into it fails, and says so.
     */
    *captured =
        error == cudaErrorStreamCaptureImplicit || status != cudaStreamCaptureStatusNone;
    return error == cudaErrorStreamCaptureImplicit ? cudaSuccess : error;
}

extern "C" __attribute__((visibility("default"))) const rpi_cuda_library *
rpi_cuda_library_table(void) {
    static const rpi_cuda_library table = {RPI_CUDA_INTERFACE,
                                           sizeof(rpi_device_call),
                                           CUDART_VERSION,
                                           RPI_CUDA_ARCHITECTURES,
                                           driver,
                                           devices,
                                           device_name,
                                           error_name,
                                           error_text,
                                           scratch_bytes,
                                           encode,
                                           decode,
                                           rpi_calls_encode,
                                           rpi_calls_decode,
                                           rpi_calls_divide,
                                           allocate,
                                           release,
                                           pin,
                                           unpin,
                                           copy,
                                           wait,
                                           event_make,
                                           event_free,
                                           event_record,
                                           event_seconds,
                                           capability,
                                           rpi_calls_load,
                                           device_set,
                                           enter,
                                           leave,
                                           device_of,
                                           stream_make,
                                           waiter_make,
                                           stream_free,
                                           stream_wait_for,
                                           stream_call,
                                           mark_make,
                                           event_done,
                                           is_captured};
    return &table;
}
