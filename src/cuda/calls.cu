/* The launches for calls, by their kinds. */
#include "cuda/calls.h"

#include "cuda/group.h"

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

int rpi_calls_encode(const rpi_device_call *calls, int count, void *stream) {
    uint64_t taken = 0;
    rpi_device_list list;
    int error = count > RPI_LIST_MOST ? cudaErrorInvalidValue : cudaSuccess;
    while (!error && rpi_device_list_take(calls, count, &taken, &list))
        error = encode_list(&list, (cudaStream_t)stream);
    return error;
}

int rpi_calls_decode(const rpi_device_call *calls, int count, int adds, void *stream) {
    uint64_t taken = 0;
    rpi_device_list list;
    int error = count > RPI_LIST_MOST ? cudaErrorInvalidValue : cudaSuccess;
    while (!error && rpi_device_list_take(calls, count, &taken, &list))
        error = decode_list(&list, adds, (cudaStream_t)stream);
    return error;
}

int rpi_calls_divide(const rpi_device_call *call, void *stream) {
    return rpi_convert_launch_divide(call, (cudaStream_t)stream);
}

size_t rpi_calls_scratch(const rpi_device_call *call) {
    return rpi_slots_scratch(call);
}

/* ---- kernels are loaded ---- */

static int load_call(const rpi_device_call *call) {
    int error = rpi_calls_encode(call, 1, NULL);
    for (int adds = 0; adds < 2 && !error; adds++)
        error = rpi_calls_decode(call, 1, adds, NULL);
    return error;
}

/* By the options that choose a kernel: what buckets are held in, with and without a residual,
 * whether they lie well. */
static int load_kind(int kind, int type) {
    static const uint64_t buckets[] = {512, 1024, RPI_LARGE_BUCKET, 2 * RPI_LARGE_BUCKET};
    static const int bits[] = {4, 8, 0};
    alignas(16) static float residual; /* it lies well */
    int error = 0;
    for (int choice = 0; choice < 288 && !error; choice++) {
        rpi_device_call call = {};
        call.kind = kind;
        call.type = type;
        call.bucket = buckets[choice % 4];
        call.residual = choice / 4 % 2 ? &residual : NULL;
        call.stochastic = choice / 8 % 2;
        call.bits = bits[choice / 16 % 3];
        call.wire_type = choice / 48 % 3;
        call.encoded = choice / 144 ? (uint8_t *)1 : NULL;
        error = load_call(&call);
    }
    return error;
}

int rpi_calls_load(void) {
    static const int kinds[] = {RPI_DEVICE_COPY, RPI_DEVICE_CONVERT, RPI_DEVICE_QUANT,
                                RPI_DEVICE_RANDK, RPI_DEVICE_SIGN};
    static const int types[] = {RPI_DEVICE_F32, RPI_DEVICE_F16, RPI_DEVICE_BF16};
    const rpi_device_call none = {};
    int error = rpi_calls_divide(&none, NULL);
    for (int kind : kinds)
        for (int type : types)
            if (!error) error = load_kind(kind, type);
    return error;
}
