/* What kernels for a GPU do, by loops of the CPU over their lanes: no GPU is needed for the
 * logic. */
#include "cuda/lane_loops.h"

#include "cuda/device_cases.h"
#include "harness/check.h"

static int lanes; /* of a bucket of the quantiser */

static void encode(const rpi_device_call *call, size_t bytes) {
    (void)bytes;
    lane_loops_encode(call, lanes);
}

static void decode(const rpi_device_call *call, size_t bytes, int adds) {
    (void)bytes;
    lane_loops_decode(call, adds, lanes);
}

static const device_runner loops = {encode, decode};

static void by_a_warp(void) {
    lanes = 32;
    device_cases_run(&loops, check_long() ? 1000 : 60);
}

static void by_a_block(void) {
    lanes = 256;
    device_cases_run(&loops, 30);
}

static void what_has_no_kernels(void) {
    rpi_device_call call;
    rp_codec codec;
    REQUIRE_OK(rp_codec_parse("fp32", &codec));
    CHECK_FAILS(rpi_device_call_of(&codec, RP_I32, 8, NULL, &call), UNSUPPORTED,
                "elements of i32");
    REQUIRE_OK(rp_codec_parse("q1:rounding=stochastic", &codec));
    float residual[8] = {0};
    rp_encode_context context = {.residual = residual};
    CHECK_FAILS(rpi_device_call_of(&codec, RP_F32, 8, &context, &call), INVALID, "1 bit");
}

CASES({"by_a_warp", by_a_warp}, {"by_a_block", by_a_block},
      {"what_has_no_kernels", what_has_no_kernels})
