/* What kernels for a GPU do, by loops of the CPU over their lanes: no GPU is needed for the
 * logic. */
#include "cuda/lane_loops.h"

#include "base/rng.h"
#include "cuda/device_cases.h"
#include "cuda/quant_whole_lanes.h"
#include "harness/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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

/* Elements of any spread, anywhere; few that are far apart; of any bits. */
static float drawn(rpi_rng *rng, int kind, float scale, float base) {
    float u = 2 * rpi_rng_uniform(rng) - 1;
    if (kind == 4) return (float)((int)(rpi_rng_u32(rng) % 33) - 16);
    if (kind != 5) return base + u * scale;
    float any = rpi_float_of_bits(rpi_rng_u32(rng));
    return rpi_float_is_finite(any) ? any : 1;
}

static void draw_bucket(rpi_rng *rng, float *x, uint64_t count) {
    int kind = (int)(rpi_rng_u32(rng) % 6), power = (int)(rpi_rng_u32(rng) % 180) - 90;
    float scale = ldexpf(1, kind < 2 ? power : power / 9);
    float base = kind == 3 ? ldexpf(2 * rpi_rng_uniform(rng) - 1, power) : 0;
    for (uint64_t i = 0; i < count; i++) x[i] = drawn(rng, kind, scale, base);
}

enum { WHOLE = 8 * 512, WHOLE_BYTES = WHOLE / 512 * (8 + 64 * 8) };

/* By the definition: a difference is told by bytes and by what they leave. */
static void compare_whole(const rpi_device_call *call, int together, long *different) {
    static uint8_t wanted[WHOLE_BYTES];
    static float left[WHOLE];
    rpi_device_call plain = *call;
    float *residual = call->residual;
    memset(wanted, 0, sizeof wanted);
    memset(call->encoded, 0, sizeof wanted);
    memcpy(left, residual, sizeof left);
    lane_loops_encode(call, together);
    plain.encoded = wanted;
    plain.residual = left;
    for (uint64_t i = 0; i < rpi_device_buckets(call); i++) {
        rpi_quant_range range = rpi_quant_lane_range(&plain, 0, 1, i, 0, 1);
        rpi_quant_lane_encode(&plain, 0, 1, 0, i, range, 0, 1);
    }
    *different += memcmp(wanted, call->encoded, sizeof wanted) != 0;
    *different += memcmp(left, residual, sizeof left) != 0;
}

/* No level of a whole bucket is bounded: no unit takes one out of its bits. */
static void whole_buckets_by(int together, uint64_t bucket, int rounds) {
    _Alignas(16) static float x[WHOLE], residual[WHOLE];
    _Alignas(16) static uint8_t encoded[WHOLE_BYTES];
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, bucket);
    long different = 0, before = lane_loops_whole();
    for (int i = 0; i < rounds; i++) {
        rpi_device_call call = {.kind = RPI_DEVICE_QUANT, .bits = 1 + i % 8, .bucket = bucket};
        call.count = WHOLE;
        call.x = x;
        call.residual = residual;
        call.encoded = encoded;
        for (uint64_t k = 0; k < WHOLE; k += bucket) draw_bucket(&rng, x + k, bucket);
        memset(residual, 0, sizeof residual);
        compare_whole(&call, together, &different);
    }
    CHECK_EQ(different, 0);
    CHECK(lane_loops_whole() - before > (long)(WHOLE / bucket) * rounds / 2);
}

static void levels_need_no_bounds(void) {
    int rounds = check_long() ? 20000 : 800;
    whole_buckets_by(32, 512, rounds);
    whole_buckets_by(32, 1024, rounds / 2);
    whole_buckets_by(256, 4096, rounds / 2);
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

enum { LARGEST = 3000, LARGEST_BYTES = LARGEST * 6 + 2 * LARGEST };

/* Magnitudes that differ in some of their digits alone; many are equal, or 0. */
static void draw_alike(rpi_rng *rng, float *x) {
    static const uint32_t masks[] = {0,       3,       0x1ff,    0x200,
                                     0xffe00, 0xfffff, 0x300000, 0x7f7fffff};
    uint32_t base = rpi_rng_u32(rng) & 0x7f700000u, mask = masks[rpi_rng_below(rng, 8)];
    uint32_t few = rpi_rng_below(rng, 3) ? 0 : rpi_rng_below(rng, 64);
    for (int i = 0; i < LARGEST; i++) {
        uint32_t bits = (base & ~mask) | (rpi_rng_u32(rng) & mask & 0x7f7fffffu);
        if (few && rpi_rng_below(rng, 64) > few) bits = 0;
        x[i] = rpi_float_of_bits(bits | rpi_rng_u32(rng) << 31);
    }
}

static void choose_largest_by(rpi_rng *rng, const char *text) {
    static float x[LARGEST];
    static uint8_t wanted[LARGEST_BYTES], encoded[LARGEST_BYTES];
    rp_codec codec;
    rpi_device_call call;
    size_t bytes;
    uint64_t became = 0;
    draw_alike(rng, x);
    REQUIRE_OK(rp_codec_parse(text, &codec));
    REQUIRE_OK(rp_codec_encode(&codec, RP_F32, x, LARGEST, NULL, wanted, &bytes));
    REQUIRE_OK(rpi_device_call_of(&codec, RP_F32, LARGEST, NULL, &call));
    call.x = x;
    call.encoded = encoded;
    call.bytes = &became;
    lane_loops_encode(&call, lanes);
    CHECK_EQ(became, bytes);
    CHECK(memcmp(encoded, wanted, bytes) == 0);
}

/* Those of a CPU, whichever digit of their magnitudes tells them from the others. */
static void largest_by_any_digit(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    for (int i = 0; i < (check_long() ? 20000 : 500) && !check_failures(); i++) {
        char text[64];
        int bucket = 1 + (int)rpi_rng_below(&rng, LARGEST),
            most = bucket < 1024 ? bucket : 1024;
        snprintf(text, sizeof text, "topk:k=%d,bucket=%d,values=fp32",
                 1 + (int)rpi_rng_below(&rng, (uint32_t)most), bucket);
        lanes = i % 2 ? 32 : 256;
        choose_largest_by(&rng, text);
    }
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
      {"levels_need_no_bounds", levels_need_no_bounds},
      {"quotients_are_true_ones", quotients_are_true_ones},
      {"largest_by_any_digit", largest_by_any_digit},
      {"what_has_no_kernels", what_has_no_kernels})
