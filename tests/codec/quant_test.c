/* The quantiser against docs/codecs.md: its bytes, its arithmetic, its edges. */
#include "codec/quant_kernels.h"

#include "codec_cases.h"

static rp_codec q(int bits, uint32_t bucket) {
    rp_codec codec = {0};
    CHECK_OK(rp_codec_parse("q4", &codec));
    codec.bits = (uint8_t)bits;
    codec.bucket = bucket;
    return codec;
}

/* Encodings worked out by hand from the document. */
static void known_bytes(void) {
    static const struct {
        int bits;
        uint32_t bucket;
        size_t count;
        float x[16];
        size_t bytes;
        uint8_t wanted[40];
    } known[] = {
        /* 16 levels 0 ... 15: min 0, unit 1 */
        {4,
         16,
         16,
         {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
         16,
         {0, 0, 0, 0, 0, 0, 0x80, 0x3f, 0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe}},
        /* 3 bits across bytes: 7 6 5 4 3 2 1 0 is 0b000 001 010 011 100 101 110 111 */
        {3,
         8,
         8,
         {7, 6, 5, 4, 3, 2, 1, 0},
         11,
         {0, 0, 0, 0, 0, 0, 0x80, 0x3f, 0x77, 0x39, 0x05}},
        /* 1 bit, range -1 ... 3: unit 4; the middle, 1, rounds up; unused bits are 0 */
        {1, 512, 5, {-1, 3, 1, 0.9f, 3}, 9, {0, 0, 0x80, 0xbf, 0, 0, 0x80, 0x40, 0x16}},
        /* two buckets, the last one short and constant: exact */
        {2,
         4,
         5,
         {0, 3, 2, 1, 5},
         18,
         {0, 0, 0, 0, 0, 0, 0x80, 0x3f, 0x6c, 0, 0, 0xa0, 0x40, 0, 0, 0, 0, 0}},
        /* 5 bits: 31 and 0 */
        {5, 2, 2, {31, 0}, 10, {0, 0, 0, 0, 0, 0, 0x80, 0x3f, 0x1f, 0x00}},
        /* 8 bits: 255, 0, 127.5 rounds up */
        {8, 3, 3, {255, 0, 127.5f}, 11, {0, 0, 0, 0, 0, 0, 0x80, 0x3f, 0xff, 0x00, 0x80}},
        /* -0 is stored as 0 */
        {4, 2, 2, {-0.0f, -0.0f}, 9, {0}},
        /* damage */
        {4, 2, 2, {1, NAN}, 9, {0, 0, 0xc0, 0x7f}},
        {4, 2, 2, {-INFINITY, 1}, 9, {0, 0, 0xc0, 0x7f}},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        rp_codec codec = q(known[i].bits, known[i].bucket);
        uint8_t wire[40];
        CHECK_EQ(rp_codec_encoded_bytes(&codec, RP_F32, known[i].count), known[i].bytes);
        REQUIRE_OK(
            rp_codec_encode(&codec, RP_F32, known[i].x, known[i].count, NULL, wire, NULL));
        for (size_t k = 0; k < known[i].bytes; k++)
            CHECK_MSG(wire[k] == known[i].wanted[k], "case %zu: byte %zu is %02x, not %02x", i,
                      k, wire[k], known[i].wanted[k]);
    }
}

static void wire_cost_is_the_formula(void) {
    rp_codec codec = q(4, 512);
    CHECK_EQ(rp_codec_encoded_bytes(&codec, RP_F32, 1 << 20), (1 << 19) + (1 << 11) * 8);
    CHECK_EQ(rp_codec_encoded_bytes(&codec, RP_F16, 513), 256 + 8 + 1 + 8);
    CHECK_EQ(rp_codec_granule(&codec), 512);
}

/* No element is further than half a step from what it decodes to; a step is (max - min) / L. */
static void nearest_is_within_half_a_step(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 3);
    for (int bits = 1; bits <= 8; bits++) {
        rp_codec codec = q(bits, 300);
        float x[300], y[300];
        uint8_t wire[400];
        codec_fill(x, RP_F32, 300, INPUT_NORMAL, &rng);
        size_t bytes = rp_codec_encoded_bytes(&codec, RP_F32, 300);
        REQUIRE_OK(rp_codec_encode(&codec, RP_F32, x, 300, NULL, wire, NULL));
        REQUIRE_OK(rp_codec_decode(&codec, RP_F32, wire, bytes, 300, NULL, y));
        float min = x[0], max = x[0];
        for (int i = 0; i < 300; i++) min = fminf(min, x[i]), max = fmaxf(max, x[i]);
        float step = (max - min) / (float)((1 << bits) - 1);
        for (int i = 0; i < 300; i++) CHECK_NEAR(y[i], x[i], step * 0.50001);
    }
}

static void constant_buckets_are_exact(void) {
    static const float values[] = {0.0f, 1.0f, -3.14159f, 1e-45f, 3.4028235e38f, 1e-20f};
    for (size_t v = 0; v < sizeof values / sizeof values[0]; v++)
        for (int bits = 1; bits <= 8; bits++) {
            rp_codec codec = q(bits, 64);
            float x[70], y[70], residual[70] = {0};
            uint8_t wire[200];
            for (int i = 0; i < 70; i++) x[i] = values[v];
            rp_encode_context context = {.residual = residual};
            size_t bytes = rp_codec_encoded_bytes(&codec, RP_F32, 70);
            REQUIRE_OK(rp_codec_encode(&codec, RP_F32, x, 70, &context, wire, NULL));
            REQUIRE_OK(rp_codec_decode(&codec, RP_F32, wire, bytes, 70, NULL, y));
            CHECK(codec_same(x, y, sizeof x));
            for (int i = 0; i < 70; i++) CHECK(residual[i] == 0);
        }
}

/* Encode 8 elements in one bucket and decode them again. */
static void pass(const rp_codec *codec, const float x[8], float *residual, float y[8]) {
    uint8_t wire[16] = {0};
    rp_encode_context context = {.residual = residual};
    memset(y, 0, 8 * sizeof *y);
    REQUIRE_OK(rp_codec_encode(codec, RP_F32, x, 8, &context, wire, NULL));
    REQUIRE_OK(rp_codec_decode(codec, RP_F32, wire, rp_codec_encoded_bytes(codec, RP_F32, 8), 8,
                               NULL, y));
}

/* A gradient of 1e-30 keeps its relative precision; one in the subnormals loses at most
 * L / 2 of their units besides, which the residual keeps. */
static void small_ranges_are_not_flattened(void) {
    rp_codec codec = q(4, 8);
    float x[8], y[8];
    for (int i = 0; i < 8; i++) x[i] = (float)i * 1e-30f;
    pass(&codec, x, NULL, y);
    for (int i = 0; i < 8; i++) CHECK_NEAR(y[i], x[i], 7e-30 / 15 * 0.5001);
    for (uint32_t step = 0; step < 40; step++) {
        float residual[8] = {0};
        for (uint32_t i = 0; i < 8; i++) x[i] = codec_float(i * step);
        pass(&codec, x, residual, y);
        for (int i = 0; i < 8; i++) {
            CHECK_NEAR(y[i], x[i], (7.5 + 0.5001 * 7 * step / 15) * 0x1p-149);
            CHECK(residual[i] == x[i] - y[i]);
        }
    }
}

static void ranges_beyond_f32_are_damage(void) {
    rp_codec codec = q(4, 8);
    float x[8] = {-3e38f, 3e38f, 0, 1, 2, 3, 4, 5}, y[8];
    float residual[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    pass(&codec, x, residual, y);
    for (int i = 0; i < 8; i++) CHECK(isnan(y[i]) && residual[i] == 0);

    /* The same without overflow, close to the largest float. */
    float near[8] = {-1.7e38f, 1.7e38f, 0, 1, 2, 3, 4, 5};
    pass(&codec, near, NULL, y);
    for (int i = 0; i < 8; i++) CHECK_NEAR(y[i], near[i], 3.4e38 / 15 * 0.5001);

    /* x + residual counts: each is finite, their sum is not. */
    float big[8] = {3e38f, 0}, more[8] = {3e38f, 0};
    pass(&codec, big, more, y);
    for (int i = 0; i < 8; i++) CHECK(isnan(y[i]) && more[i] == 0);
}

/* A finite bucket never decodes to an infinity. */
static void finite_buckets_decode_finite_or_damaged(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 4);
    for (int round = 0; round < 20000; round++) {
        rp_codec codec = q(1 + round % 8, 8);
        float x[8], y[8];
        for (int i = 0; i < 8; i++) x[i] = codec_float(0x7f7fffffu - rpi_rng_below(&rng, 9999));
        if (round & 1) x[0] = 0.0f;
        pass(&codec, x, NULL, y);
        for (int i = 0; i < 8; i++) CHECK(!isinf(y[i]));
        CHECK(isnan(y[0]) == isnan(y[7]));
    }
}

/* Damage stays in its bucket, wherever in the bucket it lies. */
static void damage_is_one_bucket_wide(void) {
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    rp_codec codec = q(4, 100);
    size_t bytes = rp_codec_encoded_bytes(&codec, RP_F32, 300);
    for (int k = 0; k < 3; k++)
        for (int at = 100; at < 200; at++) {
            float x[300], y[300], residual[300];
            uint8_t wire[300];
            for (int i = 0; i < 300; i++) x[i] = (float)(i % 10), residual[i] = 0.25f;
            x[at] = bad[k];
            rp_encode_context context = {.residual = residual};
            REQUIRE_OK(rp_codec_encode(&codec, RP_F32, x, 300, &context, wire, NULL));
            REQUIRE_OK(rp_codec_decode(&codec, RP_F32, wire, bytes, 300, NULL, y));
            for (int i = 0; i < 300; i++) {
                int inside = i >= 100 && i < 200;
                CHECK(inside ? isnan(y[i]) && residual[i] == 0 : isfinite(y[i]));
            }
        }
}

/* f16 data: scales are f32, so no range overflows; values are stored within the type. */
static void f16_is_never_overflowed(void) {
    rp_codec codec = q(4, 8);
    uint16_t x[8], y[8];
    uint8_t wire[12];
    float residual[8] = {0}, sum[8] = {0};
    for (int i = 0; i < 8; i++) x[i] = rp_f32_to_f16(i % 2 ? 65504.0f : -65504.0f);
    residual[1] = 90000.0f;
    rp_encode_context context = {.residual = residual};
    REQUIRE_OK(rp_codec_encode(&codec, RP_F16, x, 8, &context, wire, NULL));
    REQUIRE_OK(rp_codec_decode(&codec, RP_F16, wire, sizeof wire, 8, NULL, y));
    for (int i = 0; i < 8; i++) CHECK((y[i] & 0x7fff) <= 0x7bff);
    CHECK_EQ(y[1], 0x7bff);
    CHECK_EQ(y[0], 0xfbff);
    /* Sums are made in f32, where nothing was cut. */
    REQUIRE_OK(rp_codec_decode_add(&codec, RP_F16, wire, sizeof wire, 8, NULL, sum));
    CHECK_NEAR(sum[1], 155504.0, 0.05);
}

/* Scales that no encoder writes: decoding them is damage, not an accident. */
static void hostile_scales_decode(void) {
    static const float scales[][2] = {{NAN, 1},       {1, NAN},        {INFINITY, 0},
                                      {0, -INFINITY}, {3e38f, 3e38f},  {-3e38f, -3e38f},
                                      {0, -1},        {1e-45f, 1e-45f}};
    rp_codec codec = q(8, 4);
    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
        uint8_t wire[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 128, 255};
        float y[4];
        uint16_t half[4];
        memcpy(wire, scales[i], 8);
        REQUIRE_OK(rp_codec_decode(&codec, RP_F32, wire, sizeof wire, 4, NULL, y));
        REQUIRE_OK(rp_codec_decode(&codec, RP_F16, wire, sizeof wire, 4, NULL, half));
        int damaged = !isfinite(scales[i][0]) || !isfinite(scales[i][1]);
        for (int k = 0; k < 4; k++) CHECK(isnan(y[k]) == damaged);
    }
}

CASES({"known_bytes", known_bytes}, {"wire_cost_is_the_formula", wire_cost_is_the_formula},
      {"nearest_is_within_half_a_step", nearest_is_within_half_a_step},
      {"constant_buckets_are_exact", constant_buckets_are_exact},
      {"small_ranges_are_not_flattened", small_ranges_are_not_flattened},
      {"ranges_beyond_f32_are_damage", ranges_beyond_f32_are_damage},
      {"finite_buckets_decode_finite_or_damaged", finite_buckets_decode_finite_or_damaged},
      {"damage_is_one_bucket_wide", damage_is_one_bucket_wide},
      {"f16_is_never_overflowed", f16_is_never_overflowed},
      {"hostile_scales_decode", hostile_scales_decode})
