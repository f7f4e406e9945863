#include "redpoll/dtype.h"

#include "harness/check.h"
#include "harness/float_env.h"

static float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void every_f16_survives_the_round_trip(void) {
    for (uint32_t bits = 0; bits < 65536; bits++) {
        uint16_t back = rp_f32_to_f16(rp_f16_to_f32((uint16_t)bits));
        int is_nan = (bits & 0x7c00) == 0x7c00 && (bits & 0x3ff);
        CHECK_MSG(back == (is_nan ? (bits | 0x200) : bits), "f16 %04x came back as %04x", bits,
                  back);
    }
}

static void every_bf16_survives_the_round_trip(void) {
    for (uint32_t bits = 0; bits < 65536; bits++) {
        uint16_t back = rp_f32_to_bf16(rp_bf16_to_f32((uint16_t)bits));
        int is_nan = (bits & 0x7f80) == 0x7f80 && (bits & 0x7f);
        CHECK_MSG(back == (is_nan ? (bits | 0x40) : bits), "bf16 %04x came back as %04x", bits,
                  back);
    }
}

/* Halfway between two neighbours rounds to the even one; a little more rounds up. */
static void rounding_is_to_nearest_even(void) {
    for (uint32_t bits = 0; bits < 0x7bff; bits++) {
        float low = rp_f16_to_f32((uint16_t)bits), high = rp_f16_to_f32((uint16_t)(bits + 1));
        float middle = low + (high - low) * 0.5f;
        CHECK_EQ(rp_f32_to_f16(middle), bits & 1 ? bits + 1 : bits);
        CHECK_EQ(rp_f32_to_f16(nextafterf(middle, INFINITY)), bits + 1);
        CHECK_EQ(rp_f32_to_f16(nextafterf(middle, 0)), bits);
    }
    CHECK_EQ(rp_f32_to_bf16(from_bits(0x3f808000)), 0x3f80);
    CHECK_EQ(rp_f32_to_bf16(from_bits(0x3f808001)), 0x3f81);
    CHECK_EQ(rp_f32_to_bf16(from_bits(0x3f818000)), 0x3f82);
}

static void overflow_gives_infinity(void) {
    CHECK_EQ(rp_f32_to_f16(65519.996f), 0x7bff);
    CHECK_EQ(rp_f32_to_f16(65520.0f), 0x7c00);
    CHECK_EQ(rp_f32_to_f16(-1e30f), 0xfc00);
    CHECK_EQ(rp_f32_to_bf16(3.4e38f), 0x7f80);
}

static void names_round_trip(void) {
    for (int dtype = RP_F32; dtype <= RP_C128; dtype++) {
        rp_dtype parsed;
        CHECK_OK(rp_dtype_parse(rp_dtype_name((rp_dtype)dtype), &parsed));
        CHECK_EQ(parsed, dtype);
        CHECK(rp_dtype_bytes((rp_dtype)dtype) > 0);
    }
    rp_dtype parsed;
    CHECK_FAILS(rp_dtype_parse("float", &parsed), INVALID, "use one of f32");
    CHECK_FAILS(rp_dtype_parse("float", &parsed), INVALID, "c128");
    CHECK_EQ(rp_dtype_bytes((rp_dtype)99), 0);
}

/* Complex numbers have a size of two floats and are no floats: codecs refuse them. */
static void sizes_and_kinds_are_those_of_the_table(void) {
    static const struct {
        rp_dtype dtype;
        size_t bytes;
        int is_float;
    } rows[] = {{RP_F32, 4, 1},  {RP_F16, 2, 1}, {RP_BF16, 2, 1}, {RP_F64, 8, 1},
                {RP_U16, 2, 0},  {RP_U32, 4, 0}, {RP_U64, 8, 0},  {RP_I64, 8, 0},
                {RP_BOOL, 1, 0}, {RP_C64, 8, 0}, {RP_C128, 16, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CHECK_EQ(rp_dtype_bytes(rows[i].dtype), rows[i].bytes);
        CHECK_EQ(rp_dtype_is_float(rows[i].dtype), rows[i].is_float);
    }
}

/* Of every f16, of what lies between two, and of what is too small for it. */
static uint64_t conversions(void) {
    uint64_t hash = 0;
    for (uint32_t i = 0; i < 1 << 20; i++) {
        uint32_t bits = i << 12 | (i * 2654435761u >> 20);
        hash = hash * 31 + rp_f32_to_f16(from_bits(bits));
        hash = hash * 31 + rp_f32_to_bf16(from_bits(bits));
        float back[2] = {rp_f16_to_f32((uint16_t)i), rp_bf16_to_f32((uint16_t)i)};
        uint32_t back_bits[2];
        memcpy(back_bits, back, sizeof back);
        hash = (hash * 31 + back_bits[0]) * 31 + back_bits[1];
    }
    return hash;
}

static void the_caller_s_environment_changes_nothing(void) {
    uint64_t wanted = conversions();
    for (int env = 0; env < float_env_count(); env++) {
        float_env_set(env);
        uint64_t got = conversions();
        bool kept = float_env_is(env);
        float_env_reset();
        CHECK_MSG(got == wanted, "%s: other values", float_envs[env].name);
        CHECK_MSG(kept, "%s: changed", float_envs[env].name);
    }
}

CASES({"the caller's environment changes nothing", the_caller_s_environment_changes_nothing},
      {"every f16 survives the round trip", every_f16_survives_the_round_trip},
      {"every bf16 survives the round trip", every_bf16_survives_the_round_trip},
      {"rounding is to nearest even", rounding_is_to_nearest_even},
      {"overflow gives infinity", overflow_gives_infinity},
      {"names round trip", names_round_trip},
      {"sizes and kinds are those of the table", sizes_and_kinds_are_those_of_the_table})
