/* sign against docs/codecs.md: its bytes, its error, its edges. */
#include "codec_cases.h"

static rp_codec sign(uint32_t bucket) {
    rp_codec codec = {0};
    CHECK_OK(rp_codec_parse("sign", &codec));
    codec.bucket = bucket;
    return codec;
}

static void known_bytes(void) {
    static const struct {
        uint32_t bucket;
        size_t count;
        float x[9];
        size_t bytes;
        uint8_t wanted[12];
    } known[] = {
        {512, 4, {1, -2, 3, -4}, 5, {0, 0, 0x20, 0x40, 0x0a}},
        {4, 5, {1, -1, 1, -1, -3}, 10, {0, 0, 0x80, 0x3f, 0x0a, 0, 0, 0x40, 0x40, 0x01}},
        /* zeros of both signs are not negative */
        {512, 9, {0, -0.0f}, 6, {0}},
        {512, 2, {1, NAN}, 5, {0, 0, 0xc0, 0x7f, 0}},
        {512, 2, {-INFINITY, 1}, 5, {0, 0, 0xc0, 0x7f, 0}},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        rp_codec codec = sign(known[i].bucket);
        uint8_t wire[16];
        CHECK_EQ(rp_codec_encoded_bytes(&codec, RP_F32, known[i].count), known[i].bytes);
        REQUIRE_OK(
            rp_codec_encode(&codec, RP_F32, known[i].x, known[i].count, NULL, wire, NULL));
        for (size_t k = 0; k < known[i].bytes; k++)
            CHECK_MSG(wire[k] == known[i].wanted[k], "case %zu: byte %zu is %02x, not %02x", i,
                      k, wire[k], known[i].wanted[k]);
    }
}

/* |x - y|^2 = |x|^2 - (sum of |x|)^2 / n: what scales the signs best leaves no less. */
static void the_mean_is_the_best_scale(void) {
    enum { COUNT = 3000 };
    static float x[COUNT], y[COUNT];
    uint8_t wire[500];
    rp_codec codec = sign(COUNT);
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 31);
    codec_fill(x, RP_F32, COUNT, INPUT_NORMAL, &rng);
    size_t bytes = rp_codec_encoded_bytes(&codec, RP_F32, COUNT);
    REQUIRE_OK(rp_codec_encode(&codec, RP_F32, x, COUNT, NULL, wire, NULL));
    REQUIRE_OK(rp_codec_decode(&codec, RP_F32, wire, bytes, COUNT, NULL, y));
    double lost = 0, square = 0, sum = 0;
    for (int i = 0; i < COUNT; i++) {
        lost += pow((double)x[i] - (double)y[i], 2);
        square += (double)x[i] * (double)x[i];
        sum += fabs((double)x[i]);
        CHECK((x[i] < 0) == (y[i] < 0));
    }
    CHECK_NEAR(lost, square - sum * sum / COUNT, 1e-4 * square);
}

/* Unlike q1's, the residual stays bounded: what one step leaves is less than what it had. */
static void error_feedback_is_stationary(void) {
    enum { COUNT = 1024, STEPS = 2000 };
    static float x[COUNT], y[COUNT], residual[COUNT];
    static double in[COUNT], out[COUNT];
    uint8_t wire[256];
    rp_codec codec = sign(512);
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 32);
    size_t bytes = rp_codec_encoded_bytes(&codec, RP_F32, COUNT);
    double half = 0;
    for (uint64_t step = 0; step < STEPS; step++) {
        rp_encode_context context = {.step = step, .residual = residual};
        codec_fill(x, RP_F32, COUNT, INPUT_NORMAL, &rng);
        REQUIRE_OK(rp_codec_encode(&codec, RP_F32, x, COUNT, &context, wire, NULL));
        REQUIRE_OK(rp_codec_decode(&codec, RP_F32, wire, bytes, COUNT, NULL, y));
        double held = 0;
        for (int i = 0; i < COUNT; i++) {
            in[i] += (double)x[i];
            out[i] += (double)y[i];
            held += (double)residual[i] * (double)residual[i] / COUNT;
        }
        if (step == STEPS / 2) half = held;
        if (step == STEPS - 1)
            CHECK_MSG(sqrt(held) < 1.5 * sqrt(half), "residual %g, half way %g", sqrt(held),
                      sqrt(half));
    }
    for (int i = 0; i < COUNT; i++) CHECK_NEAR(in[i] - out[i], (double)residual[i], 5e-3);
}

static void hostile_means_decode(void) {
    static const float means[] = {NAN, INFINITY, -INFINITY, -1.0f, 1e-45f, 3.4e38f};
    rp_codec codec = sign(16);
    for (size_t i = 0; i < sizeof means / sizeof means[0]; i++) {
        uint8_t wire[6] = {0, 0, 0, 0, 0x55, 0xff};
        float y[16], sum[16] = {0};
        memcpy(wire, &means[i], 4);
        REQUIRE_OK(rp_codec_decode(&codec, RP_F32, wire, sizeof wire, 16, NULL, y));
        REQUIRE_OK(rp_codec_decode_add(&codec, RP_F32, wire, sizeof wire, 16, NULL, sum));
        for (int k = 0; k < 16; k++) CHECK(isnan(y[k]) == !isfinite(means[i]));
        for (int k = 0; k < 16; k++) CHECK(isnan(sum[k]) == !isfinite(means[i]));
    }
}

CASES({"known_bytes", known_bytes}, {"the_mean_is_the_best_scale", the_mean_is_the_best_scale},
      {"error_feedback_is_stationary", error_feedback_is_stationary},
      {"hostile_means_decode", hostile_means_decode})
