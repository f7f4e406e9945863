/* The kernels themselves, on a GPU: the bytes of the CPU. Skipped where there is none. */
#include "cuda/cuda.h"

#include "cuda/device_cases.h"
#include "harness/check.h"

static const rpi_cuda_library *cuda;

#define DONE(expression) CHECK_OK(rpi_cuda_check(cuda, expression, #expression))

static size_t type_bytes(int type) {
    return type == RPI_DEVICE_F32 ? 4 : 2;
}

/* A copy on the device of what the host has, at the same distance from an address that is a
 * multiple of 256; `whole` is to be released. */
typedef struct device_copy {
    char *whole, *at;
    void *host;
    size_t bytes;
} device_copy;

static device_copy to_device(void *host, size_t bytes, size_t offset) {
    device_copy copy = {.host = host, .bytes = bytes};
    void *memory = NULL;
    DONE(cuda->allocate(bytes + 256, &memory));
    copy.whole = memory;
    copy.at = copy.whole + offset;
    DONE(cuda->copy(copy.at, host, bytes, NULL));
    return copy;
}

static void back(device_copy *copy, int wanted) {
    if (wanted) DONE(cuda->copy(copy->host, copy->at, copy->bytes, NULL));
    DONE(cuda->wait(NULL));
    DONE(cuda->release(copy->whole));
}

static size_t offset_of(const void *at) {
    return (uintptr_t)at % 16;
}

static void encode(const rpi_device_call *host, size_t bytes) {
    rpi_device_call call = *host;
    device_copy x = to_device((void *)(uintptr_t)call.x, call.count * type_bytes(call.type), 0);
    device_copy out = to_device(call.encoded, bytes, offset_of(call.encoded));
    device_copy residual = {0};
    if (call.residual) residual = to_device(call.residual, call.count * sizeof(float), 0);
    call.x = x.at;
    call.encoded = (uint8_t *)out.at;
    call.residual = (float *)(void *)residual.at;
    size_t scratch = 0;
    device_copy length = to_device(call.bytes, sizeof *call.bytes, 0);
    DONE(cuda->scratch_bytes(&call, &scratch));
    if (scratch) DONE(cuda->allocate(scratch, &call.scratch));
    call.bytes = (uint64_t *)(void *)length.at;
    DONE(cuda->encode(&call, NULL));
    back(&length, 1);
    if (scratch) DONE(cuda->release(call.scratch));
    back(&x, 0);
    back(&out, 1);
    if (call.residual) back(&residual, 1);
}

static void decode(const rpi_device_call *host, size_t bytes, int adds) {
    rpi_device_call call = *host;
    device_copy in = to_device(call.encoded, bytes, offset_of(call.encoded));
    device_copy y = to_device(call.y, call.count * (adds ? 4 : type_bytes(call.type)), 0);
    device_copy offsets = to_device((void *)(uintptr_t)call.offsets,
                                    rpi_device_places(&call) * sizeof *call.offsets, 0);
    call.encoded = (uint8_t *)in.at;
    call.offsets = (const uint64_t *)(void *)offsets.at;
    call.y = y.at;
    DONE(cuda->decode(&call, adds, NULL));
    back(&offsets, 0);
    back(&in, 0);
    back(&y, 1);
}

static void same_bytes(void) {
    if (rpi_cuda_open(&cuda) != RP_OK) {
        check_skip("%s", rp_last_error()->message);
        return;
    }
    static const device_runner gpu = {encode, decode};
    device_cases_run(&gpu, check_long() ? 1000 : 100);
}

CASES({"same_bytes", same_bytes})
