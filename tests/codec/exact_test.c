#include "codec_cases.h"

static const rp_codec exact = {0};

/* Bit patterns of every kind survive, signalling NaNs and negative zeros included. */
static void every_type_travels_unchanged(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    for (int d = 0; d < CODEC_DTYPES; d++) {
        rp_dtype dtype = codec_dtypes[d];
        size_t bytes = 100 * rp_dtype_bytes(dtype);
        unsigned char x[1600], wire[1600], y[1600];
        for (size_t i = 0; i < bytes; i++) x[i] = (unsigned char)rpi_rng_u32(&rng);
        CHECK_EQ(rp_codec_is_exact(&exact, dtype), 1);
        CHECK_EQ(rp_codec_granule(&exact), 1);
        CHECK_EQ(rp_codec_encoded_bytes(&exact, dtype, 100), bytes);
        REQUIRE_OK(rp_codec_encode(&exact, dtype, x, 100, NULL, wire, NULL));
        REQUIRE_OK(rp_codec_decode(&exact, dtype, wire, bytes, 100, NULL, y));
        CHECK(codec_same(x, wire, bytes) && codec_same(x, y, bytes));
    }
}

#define CHECK_SUM(dtype, type, a, b, wanted)                                                   \
    do {                                                                                       \
        type x[3] = {(a), (a), (a)}, sum[3] = {(b), (b), (b)};                                 \
        REQUIRE_OK(rp_codec_decode_add(&exact, dtype, x, sizeof x, 3, NULL, sum));             \
        for (int i = 0; i < 3; i++) CHECK(sum[i] == (wanted));                                 \
    } while (0)

static void sums_are_made_in_the_type_and_integers_wrap(void) {
    CHECK_SUM(RP_F32, float, 1.5f, 2.25f, 3.75f);
    CHECK_SUM(RP_F64, double, 0x1p-60, 1.0 + 0x1p-52, 1.0 + 0x1p-52);
    CHECK_SUM(RP_F64, double, 0x1p-50, 1.0, 1.0 + 0x1p-50);
    CHECK_SUM(RP_I8, int8_t, 127, 1, -128);
    CHECK_SUM(RP_U8, uint8_t, 255, 2, 1);
    CHECK_SUM(RP_I16, int16_t, 32767, 1, -32768);
    CHECK_SUM(RP_I32, int32_t, INT32_MAX, 1, INT32_MIN);
    CHECK_SUM(RP_I64, int64_t, INT64_MAX, 1, INT64_MIN);
    CHECK_SUM(RP_U16, uint16_t, 65535, 2, 1);
    CHECK_SUM(RP_U32, uint32_t, UINT32_MAX, 2, 1);
    CHECK_SUM(RP_U64, uint64_t, UINT64_MAX, 2, 1);
}

static void truth_values_add_by_or_and_complex_numbers_by_parts(void) {
    unsigned char x[4] = {0, 0, 1, 1}, sum[4] = {0, 1, 0, 1};
    REQUIRE_OK(rp_codec_decode_add(&exact, RP_BOOL, x, 4, 4, NULL, sum));
    CHECK(sum[0] == 0 && sum[1] == 1 && sum[2] == 1 && sum[3] == 1);
    float c64[4] = {1, -2, 3, 0.5f}, c64_sum[4] = {10, 20, 30, 40};
    REQUIRE_OK(rp_codec_decode_add(&exact, RP_C64, c64, sizeof c64, 2, NULL, c64_sum));
    CHECK(c64_sum[0] == 11 && c64_sum[1] == 18 && c64_sum[2] == 33 && c64_sum[3] == 40.5f);
    double c128[2] = {0x1p-50, -1}, c128_sum[2] = {1, 0x1p-52};
    REQUIRE_OK(rp_codec_decode_add(&exact, RP_C128, c128, sizeof c128, 1, NULL, c128_sum));
    CHECK(c128_sum[0] == 1 + 0x1p-50 && c128_sum[1] == -1 + 0x1p-52);
}

static void halves_are_summed_in_f32(void) {
    uint16_t f16 = rp_f32_to_f16(0.00048828125f), bf16 = rp_f32_to_bf16(0.00048828125f);
    float sum[2] = {1024.0f, 1024.0f};
    REQUIRE_OK(rp_codec_decode_add(&exact, RP_F16, &f16, 2, 1, NULL, &sum[0]));
    REQUIRE_OK(rp_codec_decode_add(&exact, RP_BF16, &bf16, 2, 1, NULL, &sum[1]));
    for (int i = 0; i < 2; i++) CHECK(sum[i] == 1024.00048828125f);
}

/* What an earlier lossy step held back goes out, and nothing is held back any more. */
static void error_feedback_is_paid_out(void) {
    float x[2] = {1.0f, 2.0f}, residual[2] = {0.25f, -0.5f}, wire[2];
    rp_encode_context context = {.residual = residual};
    REQUIRE_OK(rp_codec_encode(&exact, RP_F32, x, 2, &context, wire, NULL));
    CHECK(wire[0] == 1.25f && wire[1] == 1.5f && residual[0] == 0 && residual[1] == 0);

    double wide[2] = {1.0, INFINITY}, wide_wire[2];
    float wide_residual[2] = {0x1p-40f, 1.0f};
    context.residual = wide_residual;
    REQUIRE_OK(rp_codec_encode(&exact, RP_F64, wide, 2, &context, wide_wire, NULL));
    CHECK(wide_wire[0] == 1.0 + 0x1p-40 && isinf(wide_wire[1]));
    CHECK(wide_residual[0] == 0 && wide_residual[1] == 0);

    uint16_t half[1] = {rp_f32_to_bf16(1.0f)}, half_wire[1];
    float half_residual[1] = {0x1p-7f + 0x1p-12f};
    context.residual = half_residual;
    REQUIRE_OK(rp_codec_encode(&exact, RP_BF16, half, 1, &context, half_wire, NULL));
    CHECK(rp_bf16_to_f32(half_wire[0]) == 1.0f + 0x1p-7f && half_residual[0] == 0x1p-12f);
}

CASES({"every_type_travels_unchanged", every_type_travels_unchanged},
      {"sums_are_made_in_the_type_and_integers_wrap",
       sums_are_made_in_the_type_and_integers_wrap},
      {"truth_values_add_by_or_and_complex_numbers_by_parts",
       truth_values_add_by_or_and_complex_numbers_by_parts},
      {"halves_are_summed_in_f32", halves_are_summed_in_f32},
      {"error_feedback_is_paid_out", error_feedback_is_paid_out})
