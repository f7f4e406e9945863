/* The kernels themselves, compiled for the CPU, whose blocks run as fibers (fibers/fibers.h):
 * what lanes do together, which device_lanes_test does by loops of its own. What only a GPU
 * has, its instructions and orders of memory, is not in it. */
#include "cuda/calls.h"
#include "cuda/device_cases.h"
#include "cuda/device_codec.h"
#include "cuda/fibers/fibers.h"
#include "harness/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Operations use no encodings whose bytes vary. */
static bool is_of_operations(const rpi_device_call *call) {
    return call->kind != RPI_DEVICE_TOPK && call->kind != RPI_DEVICE_VARIED;
}

static void encode(const rpi_device_call *without, size_t bytes) {
    rpi_device_call call = *without;
    long before = fibers_unloaded();
    (void)bytes;
    call.scratch = malloc(rpi_calls_scratch(&call) + 1);
    REQUIRE(call.scratch);
    CHECK_EQ(rpi_calls_encode(&call, 1, NULL), 0);
    free(call.scratch);
    if (is_of_operations(&call)) CHECK_EQ(fibers_unloaded(), before);
}

static void decode(const rpi_device_call *call, size_t bytes, int adds) {
    long before = fibers_unloaded();
    (void)bytes;
    CHECK_EQ(rpi_calls_decode(call, 1, adds, NULL), 0);
    if (is_of_operations(call)) CHECK_EQ(fibers_unloaded(), before);
}

enum { ELEMENTS = 8192 };

/* Of a bucket of zeros, with a residual or without. */
static void launch_bucket(const char *text, rp_dtype dtype, uint32_t bucket, bool feedback) {
    _Alignas(16) static float x[ELEMENTS], y[ELEMENTS], residual[ELEMENTS];
    _Alignas(16) static uint8_t wire[4 * ELEMENTS + 64];
    rp_encode_context context = {.residual = feedback ? residual : NULL};
    rp_codec codec;
    rpi_device_call call;
    REQUIRE_OK(rp_codec_parse(text, &codec));
    REQUIRE_OK(rpi_device_call_of(&codec, dtype, bucket, &context, &call));
    call.x = x;
    call.encoded = wire;
    encode(&call, 0);
    REQUIRE_OK(rpi_device_call_of(&codec, dtype, bucket, NULL, &call));
    call.encoded = wire;
    call.y = y;
    for (int adds = 0; adds < 2; adds++) decode(&call, 0, adds);
}

static void launch_buckets(const char *text) {
    static const uint32_t buckets[] = {100, 512, 700, 1024, 4096, 5000, 8192};
    static const rp_dtype dtypes[] = {RP_F32, RP_F16, RP_BF16};
    for (int i = 0; i < 7 * 3 * 2; i++) {
        char with[64];
        snprintf(with, sizeof with, "%s%sbucket=%u", text, strchr(text, ':') ? "," : ":",
                 buckets[i % 7]);
        launch_bucket(with, dtypes[i / 7 % 3], buckets[i % 7], i / 21);
    }
}

/* A kernel that is loaded in the middle of a step may wait for other libraries' kernels. */
static void operations_find_kernels_loaded(void) {
    static const char *const texts[] = {
        "q1",        "q2", "q3", "q4", "q5", "q6", "q7", "q8", "sign", "q4:rounding=stochastic",
        "randk:k=10"};
    CHECK_EQ(rpi_calls_load(), 0);
    for (int i = 0; i < 11; i++) launch_buckets(texts[i]);
}

static void bytes_of_a_cpu(void) {
    static const device_runner kernels = {encode, decode};
    CHECK_EQ(rpi_calls_load(), 0);
    device_cases_run(&kernels, check_long() ? 100 : 5);
}

CASES({"bytes_of_a_cpu", bytes_of_a_cpu},
      {"operations_find_kernels_loaded", operations_find_kernels_loaded})
