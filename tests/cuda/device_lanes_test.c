/* What kernels for a GPU do, by loops of the CPU over their lanes: no GPU is needed for the
 * logic. */
#include "cuda/lane_loops.h"

#include "base/rng.h"
#include "cuda/device_cases.h"
#include "cuda/quant_lanes.h"
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

/* Quotients from 0 to 255, by a bucket's unit of any size: near levels, where a wrong last bit
 * would be another level, and anywhere; dividends that are subnormal, too. */
static void quotients_are_true_ones(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 0);
    long wrong = 0, levels = 0;
    for (int i = 0; i < (check_long() ? 30000000 : 3000000); i++) {
        float unit = rpi_float_of_bits(rpi_rng_u32(&rng) >> 1);
        if (!(unit > 0) || !rpi_float_is_finite(unit * 256)) continue;
        rpi_divisor by = rpi_divisor_of(unit);
        float a = unit * (float)(rpi_rng_u32(&rng) % 511) * 0.5f;
        if (i % 2) a = rpi_float_of_bits(rpi_float_bits(a) + rpi_rng_u32(&rng) % 9 - 4);
        if (i % 5 == 0) a = rpi_rng_uniform(&rng) * unit * 255;
        if (i % 7 == 0) a = rpi_float_of_bits(rpi_rng_u32(&rng) & 0x00ffffffu);
        if (!(a >= 0) || !rpi_float_is_finite(a) || a / unit > 256) continue;
        rpi_octet y = {{a}}, quotient;
        rpi_quant_divide(&y, 0, by, &quotient);
        float r = i % 3 ? 0.5f : rpi_quant_dither(rpi_rng_u32(&rng) >> 16);
        rpi_quant_scale scale = {0, unit};
        wrong += quotient.value[0] != a / unit && a >= 0x1p-100f;
        levels +=
            rpi_quant_level_of(quotient.value[0], r, 255) != rpi_quant_level(a, scale, r, 255);
    }
    CHECK_EQ(wrong, 0);
    CHECK_EQ(levels, 0);
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
      {"quotients_are_true_ones", quotients_are_true_ones},
      {"what_has_no_kernels", what_has_no_kernels})
