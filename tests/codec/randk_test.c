/* randk against docs/codecs.md: its places, its bytes, its edges. */
#include "codec_cases.h"

static rp_codec randk(const char *text) {
    rp_codec codec = {0};
    CHECK_OK(rp_codec_parse(text, &codec));
    return codec;
}

/* What decodes to something else than 0 in an encoding of ones: the places. */
static size_t places(const rp_codec *codec, const rp_encode_context *context, size_t count,
                     uint16_t *at) {
    float *x = codec_buffer(4 * count);
    uint8_t *wire = codec_buffer(rp_codec_encoded_bytes(codec, RP_F32, count));
    size_t bytes = 0, found = 0;
    for (size_t i = 0; i < count; i++) x[i] = 1;
    CHECK_OK(rp_codec_encode(codec, RP_F32, x, count, context, wire, &bytes));
    CHECK_OK(rp_codec_decode(codec, RP_F32, wire, bytes, count, context, x));
    for (size_t i = 0; i < count; i++)
        if (x[i] != 0) at[found++] = (uint16_t)i;
    free(x), free(wire);
    return found;
}

/* The document's example, worked out from Philox by hand: one place in each run of 4. */
static void known_places(void) {
    rp_codec codec = randk("randk:k=4,bucket=16");
    rp_encode_context context = {.seed = 0x123456789abcdef0, .step = 7, .tensor = 3, .role = 9};
    uint32_t names[4], words[4];
    const uint32_t named[4] = {7, 0, 3, 0x646e6172}, key[2] = {0x9abcdef0, 0x12345678};
    rp_philox4x32(named, key, names);
    const uint32_t first[4] = {5, 0, names[2], names[3]};
    rp_philox4x32(first, names, words);
    context.first = 5 * 16;
    uint16_t at[16];
    REQUIRE(places(&codec, &context, 16, at) == 4);
    for (uint32_t i = 0; i < 4; i++) CHECK_EQ(at[i], 4 * i + (words[i] >> 30));
}

static void nothing_but_values_travels(void) {
    rp_codec codec = randk("randk");
    CHECK_EQ(rp_codec_encoded_bytes(&codec, RP_F32, 8192), 2 * 64);
    CHECK_EQ(rp_codec_encoded_bytes(&codec, RP_F32, 4097), 64 + 2);
    codec = randk("randk:k=8,bucket=64,values=fp32");
    float x[64], y[64], wire[8];
    for (int i = 0; i < 64; i++) x[i] = (float)(i + 1);
    REQUIRE_OK(rp_codec_encode(&codec, RP_F32, x, 64, NULL, wire, NULL));
    REQUIRE_OK(rp_codec_decode(&codec, RP_F32, wire, sizeof wire, 64, NULL, y));
    for (int run = 0; run < 8; run++) {
        CHECK(wire[run] > (float)(8 * run) && wire[run] <= (float)(8 * run + 8));
        CHECK(y[(int)wire[run] - 1] == wire[run]);
    }
}

/* Places are those of every rank and role; of another step, seed, tensor or bucket they are
 * others. */
static void places_follow_from_the_context(void) {
    rp_codec codec = randk("randk:k=64,bucket=4096");
    rp_encode_context base = {.seed = 1, .step = 2, .tensor = 3, .first = 4096}, c = base;
    uint16_t one[64], other[64];
    REQUIRE(places(&codec, &base, 4096, one) == 64);
    c.role = 7;
    REQUIRE(places(&codec, &c, 4096, other) == 64);
    CHECK(codec_same(one, other, sizeof one));
    for (int k = 0; k < 4; k++) {
        c = base;
        if (k == 0) c.seed++;
        if (k == 1) c.step++;
        if (k == 2) c.tensor++;
        if (k == 3) c.first += 4096;
        REQUIRE(places(&codec, &c, 4096, other) == 64);
        CHECK(!codec_same(one, other, sizeof one));
    }
}

/* Every element is kept equally often: within 5 standard deviations, for any k and length. */
static void every_element_is_kept_equally_often(void) {
    enum { STEPS = 4000 };
    static const struct {
        const char *codec;
        size_t count;
        double share;
    } cases[] = {{"randk:k=8,bucket=64", 64, 8.0 / 64}, {"randk:k=5,bucket=50", 20, 2.0 / 20}};
    for (int k = 0; k < 2; k++) {
        rp_codec codec = randk(cases[k].codec);
        int kept[64] = {0};
        uint16_t at[64];
        for (uint64_t step = 0; step < STEPS; step++) {
            rp_encode_context context = {.seed = check_seed(), .step = step};
            size_t found = places(&codec, &context, cases[k].count, at);
            for (size_t i = 0; i < found; i++) kept[at[i]]++;
        }
        double wanted = STEPS * cases[k].share, spread = sqrt(wanted * (1 - cases[k].share));
        for (size_t i = 0; i < cases[k].count; i++)
            CHECK_MSG(fabs(kept[i] - wanted) < 5 * spread,
                      "element %zu was kept %d times of %g", i, kept[i], wanted);
    }
}

/* Damage is told even where it is not sent, and does not stay in the residual. */
static void damage_is_one_bucket_wide(void) {
    rp_codec codec = randk("randk:k=2,bucket=32");
    for (int at = 0; at < 32; at++) {
        float x[96], y[96], residual[96];
        uint8_t wire[12];
        for (int i = 0; i < 96; i++) x[i] = 1, residual[i] = 0.5f;
        x[32 + at] = at % 2 ? NAN : INFINITY;
        rp_encode_context context = {.residual = residual};
        REQUIRE_OK(rp_codec_encode(&codec, RP_F32, x, 96, &context, wire, NULL));
        REQUIRE_OK(rp_codec_decode(&codec, RP_F32, wire, sizeof wire, 96, NULL, y));
        for (int i = 0; i < 96; i++)
            CHECK(i / 32 == 1 ? isnan(y[i]) && residual[i] == 0 : isfinite(y[i]));
    }
}

CASES({"known_places", known_places},
      {"nothing_but_values_travels", nothing_but_values_travels},
      {"places_follow_from_the_context", places_follow_from_the_context},
      {"every_element_is_kept_equally_often", every_element_is_kept_equally_often},
      {"damage_is_one_bucket_wide", damage_is_one_bucket_wide})
