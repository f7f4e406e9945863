#include "cuda/device_runner.h"

#include "harness/check.h"

#include <stdlib.h>
#include <string.h>

enum { BOUNCE_BYTES = 1 << 20 };

static const rpi_cuda_library *cuda;
static void *bounce; /* pinned */

#define DONE(expression) CHECK_OK(rpi_cuda_check(cuda, expression, #expression))

static size_t type_bytes(int type) {
    return type == RPI_DEVICE_F32 ? 4 : 2;
}

/* A copy on the device of what the host has, at the same distance from an address that is a
 * multiple of 16, and not a byte more behind it: what is read or written there is seen by
 * compute-sanitizer. `whole` is to be released. */
typedef struct device_copy {
    char *whole, *at;
    void *host;
    size_t bytes;
} device_copy;

static device_copy to_device(const void *host, size_t bytes) {
    device_copy copy = {.host = (void *)(uintptr_t)host, .bytes = bytes};
    size_t offset = (uintptr_t)host % 16;
    void *memory = NULL;
    if (bytes > BOUNCE_BYTES) abort();
    DONE(cuda->allocate(offset + bytes, &memory));
    if (!memory) abort();
    copy.whole = memory;
    copy.at = copy.whole + offset;
    if (bytes) memcpy(bounce, host, bytes);
    DONE(cuda->copy(copy.at, bounce, bytes, NULL));
    DONE(cuda->wait(NULL));
    return copy;
}

static void back(device_copy *copy, bool wanted) {
    if (wanted) DONE(cuda->copy(bounce, copy->at, copy->bytes, NULL));
    DONE(cuda->wait(NULL));
    if (wanted) memcpy(copy->host, bounce, copy->bytes);
    DONE(cuda->release(copy->whole));
}

/* As the second piece of a list, whose first does the same elsewhere: its bytes. */
static void check_twin(device_copy *twin, const char *host) {
    char *kept = malloc(twin->bytes + 1);
    if (!kept) abort();
    memcpy(kept, host, twin->bytes);
    twin->host = kept;
    back(twin, true);
    CHECK(memcmp(kept, host, twin->bytes) == 0);
    free(kept);
}

static void encode(const rpi_device_call *host, size_t bytes) {
    rpi_device_call call = *host, calls[2];
    device_copy x = to_device(call.x, call.count * type_bytes(call.type));
    device_copy out =
        to_device(call.encoded - DEVICE_CASES_GUARD, bytes + 2 * DEVICE_CASES_GUARD);
    device_copy residual = {0}, length = {0}, twin_residual = {0};
    device_copy twin = to_device(call.encoded - DEVICE_CASES_GUARD, out.bytes);
    size_t scratch = 0;
    if (call.residual) twin_residual = to_device(call.residual, call.count * sizeof(float));
    if (call.residual) residual = to_device(call.residual, call.count * sizeof(float));
    if (call.bytes) length = to_device(call.bytes, sizeof *call.bytes);
    call.x = x.at;
    call.encoded = (uint8_t *)out.at + DEVICE_CASES_GUARD;
    if (call.residual) call.residual = (float *)(void *)residual.at;
    if (call.bytes) call.bytes = (uint64_t *)(void *)length.at;
    DONE(cuda->scratch_bytes(&call, &scratch));
    if (scratch) DONE(cuda->allocate(scratch, &call.scratch));
    calls[0] = calls[1] = call;
    calls[0].encoded = (uint8_t *)twin.at + DEVICE_CASES_GUARD;
    if (call.residual) calls[0].residual = (float *)(void *)twin_residual.at;
    DONE(scratch ? cuda->encode(&call, NULL) : cuda->encode_all(calls, 2, NULL));
    back(&out, true);
    if (scratch)
        back(&twin, false);
    else
        check_twin(&twin, out.host);
    if (length.host) back(&length, true);
    if (scratch) DONE(cuda->release(call.scratch));
    back(&x, false);
    if (residual.host) back(&residual, true);
    if (residual.host && scratch) back(&twin_residual, false);
    if (residual.host && !scratch) check_twin(&twin_residual, residual.host);
}

static void decode(const rpi_device_call *host, size_t bytes, int adds) {
    rpi_device_call call = *host, calls[2];
    size_t places = rpi_device_places(&call);
    device_copy in = to_device(call.encoded, bytes);
    device_copy y = to_device(call.y, call.count * (adds ? 4 : type_bytes(call.type)));
    device_copy twin = to_device(call.y, y.bytes);
    device_copy offsets = {0};
    if (places) offsets = to_device(call.offsets, places * sizeof *call.offsets);
    call.encoded = (uint8_t *)in.at;
    call.offsets = (const uint64_t *)(void *)offsets.at;
    call.y = y.at;
    calls[0] = calls[1] = call;
    calls[0].y = twin.at;
    DONE(cuda->decode_all(calls, 2, adds, NULL));
    back(&y, true);
    check_twin(&twin, y.host);
    if (offsets.host) back(&offsets, false);
    back(&in, false);
}

const device_runner *device_runner_by(const rpi_cuda_library *table) {
    static const device_runner runner = {encode, decode};
    cuda = table;
    if (!bounce) DONE(cuda->pin(BOUNCE_BYTES, &bounce));
    if (!bounce) abort();
    return &runner;
}

void device_runner_end(void) {
    DONE(cuda->unpin(bounce));
    bounce = NULL;
}
