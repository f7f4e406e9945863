/* libredpoll_cuda.so: the table of cuda_library.h over the CUDA runtime, which is linked
 * statically and looks for a driver when it is first asked something. */
#include "cuda/cuda_library.h"

#include "cuda/group.h"
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
    *out = rpi_slots_scratch(call);
    return cudaSuccess;
}

static int encode_list(rpi_device_list *list, cudaStream_t on) {
    switch (list->call[0].kind) {
    case RPI_DEVICE_COPY: return rpi_copy_launch(list, 0, on);
    case RPI_DEVICE_CONVERT: return rpi_convert_launch_encode(list, on);
    case RPI_DEVICE_QUANT: return rpi_quant_launch_encode(list, on);
    case RPI_DEVICE_RANDK: return rpi_randk_launch_encode(list, on);
    case RPI_DEVICE_SIGN: return rpi_sign_launch_encode(list, on);
    case RPI_DEVICE_TOPK: return rpi_topk_launch_encode(&list->call[0], on);
    case RPI_DEVICE_VARIED: return rpi_varied_launch_encode(&list->call[0], on);
    default: return cudaErrorInvalidValue;
    }
}

static int decode_list(rpi_device_list *list, int adds, cudaStream_t on) {
    switch (list->call[0].kind) {
    case RPI_DEVICE_COPY: return rpi_copy_launch(list, 1, on);
    case RPI_DEVICE_CONVERT: return rpi_convert_launch_decode(list, adds, on);
    case RPI_DEVICE_QUANT: return rpi_quant_launch_decode(list, adds, on);
    case RPI_DEVICE_RANDK: return rpi_randk_launch_decode(list, adds, on);
    case RPI_DEVICE_SIGN: return rpi_sign_launch_decode(list, adds, on);
    case RPI_DEVICE_TOPK: return rpi_topk_launch_decode(&list->call[0], adds, on);
    case RPI_DEVICE_VARIED: return rpi_varied_launch_decode(&list->call[0], adds, on);
    default: return cudaErrorInvalidValue;
    }
}

static int encode_all(const rpi_device_call *calls, int count, void *stream) {
    uint64_t taken = 0;
    rpi_device_list list;
    int error = count > RPI_LIST_MOST ? cudaErrorInvalidValue : cudaSuccess;
    while (!error && rpi_device_list_take(calls, count, &taken, &list))
        error = encode_list(&list, (cudaStream_t)stream);
    return error;
}

static int decode_all(const rpi_device_call *calls, int count, int adds, void *stream) {
    uint64_t taken = 0;
    rpi_device_list list;
    int error = count > RPI_LIST_MOST ? cudaErrorInvalidValue : cudaSuccess;
    while (!error && rpi_device_list_take(calls, count, &taken, &list))
        error = decode_list(&list, adds, (cudaStream_t)stream);
    return error;
}

static int encode(const rpi_device_call *call, void *stream) {
    return encode_all(call, 1, stream);
}

static int decode(const rpi_device_call *call, int adds, void *stream) {
    return decode_all(call, 1, adds, stream);
}

static int divide(const rpi_device_call *call, void *stream) {
    return rpi_convert_launch_divide(call, (cudaStream_t)stream);
}

/* ---- kernels are loaded ---- */

static int load_call(const rpi_device_call *call) {
    int error = encode(call, NULL);
    for (int adds = 0; adds < 2 && !error; adds++) error = decode(call, adds, NULL);
    return error;
}

/* By the options that choose a kernel: what buckets are held in, with and without a residual,
 * whether they lie well. */
static int load_kind(int kind, int type) {
    static const uint64_t buckets[] = {512, 1024, RPI_LARGE_BUCKET, 2 * RPI_LARGE_BUCKET};
    static const int bits[] = {4, 0};
    alignas(16) static float residual; /* it lies well */
    int error = 0;
    for (int choice = 0; choice < 192 && !error; choice++) {
        rpi_device_call call = {};
        call.kind = kind;
        call.type = type;
        call.bucket = buckets[choice % 4];
        call.residual = choice / 4 % 2 ? &residual : NULL;
        call.stochastic = choice / 8 % 2;
        call.bits = bits[choice / 16 % 2];
        call.wire_type = choice / 32 % 3;
        call.encoded = choice / 96 ? (uint8_t *)1 : NULL;
        error = load_call(&call);
    }
    return error;
}

static int load() {
    static const int kinds[] = {RPI_DEVICE_COPY, RPI_DEVICE_CONVERT, RPI_DEVICE_QUANT,
                                RPI_DEVICE_RANDK, RPI_DEVICE_SIGN};
    static const int types[] = {RPI_DEVICE_F32, RPI_DEVICE_F16, RPI_DEVICE_BF16};
    const rpi_device_call none = {};
    int error = divide(&none, NULL);
    for (int kind : kinds)
        for (int type : types)
            if (!error) error = load_kind(kind, type);
    return error;
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
                                           encode_all,
                                           decode_all,
                                           divide,
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
                                           load,
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
