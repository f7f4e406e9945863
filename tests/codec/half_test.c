#include "codec/codec_convert.h"

#include "codec_cases.h"

static rp_codec codec_named(const char *name) {
    rp_codec codec = {0};
    CHECK_OK(rp_codec_parse(name, &codec));
    return codec;
}

/* All 65536 patterns of a type pass through their own codec bit for bit. */
static void own_type_is_exact(void) {
    static const struct {
        const char *name;
        rp_dtype own, other;
    } halves[] = {{"bf16", RP_BF16, RP_F16}, {"fp16", RP_F16, RP_BF16}};
    for (int k = 0; k < 2; k++) {
        rp_codec codec = codec_named(halves[k].name);
        static uint16_t x[65536], wire[65536], y[65536];
        for (int i = 0; i < 65536; i++) x[i] = (uint16_t)i;
        CHECK_EQ(rp_codec_is_exact(&codec, halves[k].own), 1);
        CHECK_EQ(rp_codec_is_exact(&codec, halves[k].other), 0);
        CHECK_EQ(rp_codec_is_exact(&codec, RP_F32), 0);
        CHECK_EQ(rp_codec_supports(&codec, RP_F64), 0);
        CHECK_EQ(rp_codec_supports(&codec, RP_I32), 0);
        REQUIRE_OK(rp_codec_encode(&codec, halves[k].own, x, 65536, NULL, wire, NULL));
        REQUIRE_OK(rp_codec_decode(&codec, halves[k].own, wire, sizeof wire, 65536, NULL, y));
        CHECK(codec_same(x, wire, sizeof x) && codec_same(x, y, sizeof x));
    }
}

static void finite_values_stay_finite(void) {
    static const struct {
        const char *codec;
        float x, wanted;
    } known[] = {
        {"fp16", 65519.0f, 65504.0f},
        {"fp16", 65520.0f, 65504.0f},
        {"fp16", -1e30f, -65504.0f},
        {"fp16", INFINITY, INFINITY},
        {"fp16", -INFINITY, -INFINITY},
        {"fp16", 0x1p-25f, 0.0f},
        {"fp16", 0x1.8p-24f, 0x1p-23f},
        {"fp16", 1.0f + 0x1p-11f, 1.0f},
        {"bf16", 3.4e38f, 0x1.fep127f},
        {"bf16", -3.4e38f, -0x1.fep127f},
        {"bf16", INFINITY, INFINITY},
        {"bf16", 1.0f + 0x1p-8f, 1.0f},
        {"bf16", 1.0f + 0x1.8p-7f, 1.0f + 0x1p-6f},
        {"bf16", 0x1p-135f, 0x1p-133f * 0.0f},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        rp_codec codec = codec_named(known[i].codec);
        float x[20], y[20];
        uint16_t wire[20];
        for (int k = 0; k < 20; k++) x[k] = known[i].x;
        REQUIRE_OK(rp_codec_encode(&codec, RP_F32, x, 20, NULL, wire, NULL));
        REQUIRE_OK(rp_codec_decode(&codec, RP_F32, wire, sizeof wire, 20, NULL, y));
        for (int k = 0; k < 20; k++)
            CHECK_MSG(y[k] == known[i].wanted, "%s of %g is %g", known[i].codec, x[k], y[k]);
    }
}

static void nan_stays_alone(void) {
    rp_codec codec = codec_named("fp16");
    float x[3] = {1.0f, NAN, 2.0f}, y[3], residual[3] = {0.125f, 0.5f, 0};
    uint16_t wire[3];
    rp_encode_context context = {.residual = residual};
    REQUIRE_OK(rp_codec_encode(&codec, RP_F32, x, 3, &context, wire, NULL));
    REQUIRE_OK(rp_codec_decode(&codec, RP_F32, wire, sizeof wire, 3, NULL, y));
    CHECK(y[0] == 1.125f && isnan(y[1]) && y[2] == 2.0f);
    CHECK(residual[0] == 0 && residual[1] == 0 && residual[2] == 0);
}

static void bf16_data_saturates_in_fp16(void) {
    rp_codec codec = codec_named("fp16");
    uint16_t x = rp_f32_to_bf16(1e20f), wire, y;
    REQUIRE_OK(rp_codec_encode(&codec, RP_BF16, &x, 1, NULL, &wire, NULL));
    CHECK_EQ(wire, 0x7bff);
    REQUIRE_OK(rp_codec_decode(&codec, RP_BF16, &wire, 2, 1, NULL, &y));
    CHECK_EQ(y, rp_f32_to_bf16(65504.0f));
}

/* Vector conversions against base's, over all of f16 and bf16 and a spread of f32. */
static void conversions_agree_on_every_isa(void) {
    static const rp_dtype types[] = {RP_F16, RP_BF16};
    static float wide[2][65536 + 3];
    static uint16_t x[65536 + 3], narrow[2][65536 + 3];
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 2);
    for (int i = 0; i < 65536 + 3; i++) x[i] = (uint16_t)i;
    for (int isa = 1; isa <= (int)rpi_cpu_isa_max(); isa++)
        for (int t = 0; t < 2; t++) {
            CHECK(rpi_convert(types[t], (rpi_isa)isa) != rpi_convert(types[t], RPI_ISA_SCALAR));
            for (int k = 0; k < 2; k++)
                rpi_convert(types[t], k ? (rpi_isa)isa : RPI_ISA_SCALAR)
                    ->widen(x, 65536 + 3, wide[k]);
            CHECK(codec_same(wide[0], wide[1], sizeof wide[0]));
            for (int i = 0; i < 65536; i++)
                wide[0][i] = codec_float((uint32_t)i << 16 | (rpi_rng_u32(&rng) >> 16));
            for (int k = 0; k < 2; k++)
                rpi_convert(types[t], k ? (rpi_isa)isa : RPI_ISA_SCALAR)
                    ->narrow(wide[0], 65536 + 3, narrow[k]);
            CHECK(codec_same(narrow[0], narrow[1], sizeof narrow[0]));
        }
}

CASES({"own_type_is_exact", own_type_is_exact},
      {"finite_values_stay_finite", finite_values_stay_finite},
      {"nan_stays_alone", nan_stays_alone},
      {"bf16_data_saturates_in_fp16", bf16_data_saturates_in_fp16},
      {"conversions_agree_on_every_isa", conversions_agree_on_every_isa})
