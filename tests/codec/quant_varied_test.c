/* v1 ... v8 against docs/codecs.md: their bytes, who gets bits, what is lost, what is refused.
 */
#include "codec_cases.h"

static rp_codec varied(const char *text) {
    rp_codec codec = {0};
    CHECK_OK(rp_codec_parse(text, &codec));
    return codec;
}

/* ---- bytes ---- */

/* Encodings worked out by hand from the document. */
static void known_bytes(void) {
    static const struct {
        const char *codec;
        size_t count;
        float x[8];
        size_t bytes;
        uint8_t wanted[24];
    } known[] = {
        {"v4", 8, {0}, 1, {0}},
        {"v4", 3, {-0.0f, 0, -0.0f}, 1, {0}},
        {"v4", 4, {-2, -2, -2, -2}, 5, {9, 0, 0, 0, 0xc0}},
        {"v4", 4, {-2, NAN, -2, -2}, 1, {0xff}},
        {"v4", 2, {INFINITY, 1}, 1, {0xff}},
        /* without the one farther out there is no variance: levels reach both, unit 3 */
        {"v1:quarters=3", 2, {2, 5}, 8, {1, 0, 0, 0, 0x40, 0x40, 0x40, 2}},
        /* buckets of two elements share nothing */
        {"v1:bucket=2", 4, {1, 1, 0, 0}, 6, {9, 0, 0, 0x80, 0x3f, 0}},
        /* stochastic: two bits at least, levels from the lowest element to the highest */
        {"v2:rounding=stochastic", 2, {2, 5}, 8, {2, 0, 0, 0, 0x40, 0x80, 0x3f, 0x0c}},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        rp_codec codec = varied(known[i].codec);
        uint8_t wire[64];
        size_t bytes = 0;
        REQUIRE_OK(
            rp_codec_encode(&codec, RP_F32, known[i].x, known[i].count, NULL, wire, &bytes));
        CHECK_MSG(bytes == known[i].bytes, "case %zu: %zu bytes", i, bytes);
        for (size_t k = 0; k < known[i].bytes && k < bytes; k++)
            CHECK_MSG(wire[k] == known[i].wanted[k], "case %zu: byte %zu is %02x, not %02x", i,
                      k, wire[k], known[i].wanted[k]);
    }
    rp_codec codec = varied("v4");
    CHECK_EQ(rp_codec_granule(&codec), 16384);
    CHECK_EQ(rp_codec_encoded_bytes(&codec, RP_F32, 16384), 64 * 7 + 16384 * 5 / 8);
    CHECK_EQ(rp_codec_encoded_bytes(&codec, RP_F32, 16384 + 257), 66 * 7 + 16641 * 5 / 8 + 1);
}

static size_t encode(const rp_codec *codec, const float *x, size_t count,
                     const rp_encode_context *context, float *y) {
    size_t bytes = 0, most = rp_codec_encoded_bytes(codec, RP_F32, count);
    uint8_t *wire = codec_buffer(most);
    CHECK_OK(rp_codec_encode(codec, RP_F32, x, count, context, wire, &bytes));
    CHECK_MSG(bytes <= most, "%zu bytes of at most %zu", bytes, most);
    if (y) CHECK_OK(rp_codec_decode(codec, RP_F32, wire, bytes, count, context, y));
    free(wire);
    return bytes;
}

/* Whatever variances the runs have, the room that was asked for is enough: the address
 * sanitizer sees one byte too many. */
static void no_spread_needs_more_room(void) {
    enum { COUNT = 8 * 256 };
    static float x[COUNT];
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 61);
    for (int round = 0; round < 4000; round++) {
        rp_codec codec = rpi_codec_default(varied("v4").kind, 1 + round % 8);
        codec.option[0] = rpi_rng_below(&rng, 4);
        codec.rounding = codec.bits > 1 && round % 3 == 0;
        float spread = 4 * rpi_rng_uniform(&rng), scale = 1;
        size_t count = round % 2 ? COUNT : 1 + rpi_rng_below(&rng, COUNT);
        for (size_t i = 0; i < count; i++) {
            if (i % 256 == 0) scale = expf(spread * rpi_rng_normal(&rng));
            x[i] = scale * (rpi_rng_uniform(&rng) - 0.5f);
        }
        encode(&codec, x, count, NULL, NULL);
    }
}

/* ---- who gets bits, and what is lost ---- */

static double lost(const float *x, const float *y, size_t count) {
    double square = 0;
    for (size_t i = 0; i < count; i++) square += pow((double)x[i] - (double)y[i], 2);
    return square;
}

/* Of normally distributed elements no run is better off than its bits allow: the errors are
 * those of the best uniform quantiser (Max 1960), and each bit pays. */
static void errors_are_those_of_the_best_levels(void) {
    static const double best[9] = {1,      0.3634,  0.1188, 0.0374,  0.0115,
                                   0.0035, 0.00104, 0.0003, 0.000087};
    enum { COUNT = 65536 };
    static float x[COUNT], y[COUNT];
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 62);
    codec_fill(x, RP_F32, COUNT, INPUT_NORMAL, &rng);
    double before = COUNT;
    for (int level = 0; level < 32; level++) {
        rp_codec codec = rpi_codec_default(varied("v4").kind, 1 + level / 4);
        codec.option[0] = (uint32_t)level % 4;
        size_t bytes = encode(&codec, x, COUNT, NULL, y);
        double bits = 8 * (double)(bytes - 7 * COUNT / 256) / COUNT;
        double error = lost(x, y, COUNT);
        int below = (int)bits, above = below < 8 ? below + 1 : 8;
        double wanted = best[below] + (bits - below) * (best[above] - best[below]);
        CHECK_MSG(error <= 1.15 * wanted * COUNT, "v%d:quarters=%u: %g an element with %g bits",
                  codec.bits, codec.option[0], error / COUNT, bits);
        CHECK_MSG(error <= before * 1.0001, "level %d loses more than the one below", level);
        before = error;
    }
}

/* Runs whose elements are sixteen times as large get about two bits and a half more. */
static void bits_follow_the_variance(void) {
    enum { COUNT = 16384 };
    static float x[COUNT], y[COUNT];
    rp_codec codec = varied("v3"), fixed = varied("q3:bucket=256");
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 63);
    codec_fill(x, RP_F32, COUNT, INPUT_NORMAL, &rng);
    for (int i = 0; i < COUNT; i++)
        if (i / 256 % 4) x[i] /= 16;
    size_t bytes = encode(&codec, x, COUNT, NULL, y);
    double error = lost(x, y, COUNT);
    size_t fixed_bytes = encode(&fixed, x, COUNT, NULL, y);
    CHECK_MSG(2 * bytes < fixed_bytes, "%zu bytes, %zu of q3", bytes, fixed_bytes);
    CHECK_MSG(error < lost(x, y, COUNT), "error %g", error);
}

/* An element far out is not cut off for the sake of the others. */
static void outliers_are_reached(void) {
    float x[256], y[256];
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 64);
    for (int bits = 2; bits <= 8; bits++) {
        rp_codec codec = rpi_codec_default(varied("v4").kind, bits);
        codec_fill(x, RP_F32, 256, INPUT_NORMAL, &rng);
        x[77] = 1000;
        encode(&codec, x, 256, NULL, y);
        CHECK_MSG(fabs((double)y[77] - 1000) < 350, "%d bits make 1000 %g", bits,
                  (double)y[77]);
    }
}

/* ---- rounding and error feedback ---- */

static void stochastic_rounding_is_right_on_average(void) {
    enum { COUNT = 600, ROUNDS = 4000 };
    static float x[COUNT], y[COUNT];
    static double sum[COUNT];
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 65);
    rp_codec codec = varied("v2:rounding=stochastic");
    codec_fill(x, RP_F32, COUNT, INPUT_NORMAL, &rng);
    for (int i = 0; i < 256; i++) x[i] *= 0.05f;
    for (uint64_t step = 0; step < ROUNDS; step++) {
        encode(&codec, x, COUNT, &(rp_encode_context){.seed = check_seed(), .step = step}, y);
        for (int i = 0; i < COUNT; i++) sum[i] += (double)y[i];
    }
    for (int i = 0; i < COUNT; i++) { /* a level is 2.5 wide at most, 5 deviations */
        double tolerance = (i < 256 ? 0.1 : 2.5) / 2 * 5 / sqrt(ROUNDS);
        CHECK_NEAR(sum[i] / ROUNDS, (double)x[i], tolerance);
    }
}

/* Nothing is lost, and what is held back stays bounded, with one bit too. */
static void error_feedback_settles(const rp_codec *codec, double wanted) {
    enum { COUNT = 1200, STEPS = 500 };
    static float x[COUNT], y[COUNT], residual[COUNT];
    static double in[COUNT], out[COUNT];
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 66);
    memset(residual, 0, sizeof residual), memset(in, 0, sizeof in), memset(out, 0, sizeof out);
    double largest = 0;
    for (uint64_t step = 0; step < STEPS; step++) {
        rp_encode_context context = {.step = step, .residual = residual};
        codec_fill(x, RP_F32, COUNT, INPUT_NORMAL, &rng);
        double held = 0, given = 0;
        for (int i = 0; i < COUNT; i++) {
            if (i < 512) x[i] *= 0.03f; /* two runs that get few bits or none */
            in[i] += (double)x[i];
            given += (double)x[i] * (double)x[i];
        }
        encode(codec, x, COUNT, &context, y);
        for (int i = 0; i < COUNT; i++) {
            out[i] += (double)y[i];
            held += (double)residual[i] * (double)residual[i];
        }
        if (sqrt(held / given) > largest) largest = sqrt(held / given);
    }
    for (int i = 0; i < COUNT; i++) CHECK_NEAR(in[i] - out[i], (double)residual[i], 1e-3);
    CHECK_MSG(largest < wanted, "v%d: the residual has grown to %g times a gradient",
              codec->bits, largest);
}

static void error_feedback_settles_with_all_bits(void) {
    static const double wanted[9] = {0, 3, 1, 0.5, 0.3, 0.15, 0.1, 0.05, 0.03};
    for (int bits = 1; bits <= 8; bits++) {
        rp_codec codec = rpi_codec_default(varied("v4").kind, bits);
        error_feedback_settles(&codec, wanted[bits]);
    }
}

/* ---- bytes that no encoder makes ---- */

static void what_cannot_be_encoded_is_refused(void) {
    static const struct {
        size_t bytes;
        uint8_t wire[16];
        const char *words;
    } bad[] = {
        {0, {0}, "end before element 0"},
        {1, {10}, "have 10 bits; 0 to 8"},
        {1, {254}, "have 254 bits"},
        {4, {9, 0, 0, 0}, "end inside the run of element 0"},
        {7, {1, 0, 0, 0, 0, 0, 0}, "end inside the run of element 0"},
        {2, {0, 0}, "1 bytes are behind the last run"},
        {1, {1}, "end inside"},
        {13, {0}, "take at most 12 bytes"},
    };
    rp_codec codec = varied("v4");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        float y[8];
        uint8_t *wire = codec_buffer(bad[i].bytes);
        memcpy(wire, bad[i].wire, bad[i].bytes);
        CHECK_FAILS(rp_codec_decode(&codec, RP_F32, wire, bad[i].bytes, 8, NULL, y), CORRUPT,
                    bad[i].words);
        CHECK_FAILS(rp_codec_decode_add(&codec, RP_F32, wire, bad[i].bytes, 8, NULL, y),
                    CORRUPT, bad[i].words);
        free(wire);
    }
}

/* Sound encodings with bytes changed or cut off: refused, or decoded without touching anything
 * beside y (which the address sanitizer sees). */
static void damaged_encodings_do_no_harm(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 67);
    int refused = 0, taken = 0;
    for (int round = 0; round < 6000; round++) {
        rp_codec codec = rpi_codec_default(varied("v4").kind, 1 + round % 8);
        codec.bucket = round % 3 ? 1000 : 16384;
        size_t count = 1 + rpi_rng_below(&rng, 3000), bytes = 0;
        float *x = codec_buffer(4 * count);
        uint8_t *wire = codec_buffer(rp_codec_encoded_bytes(&codec, RP_F32, count));
        codec_fill(x, RP_F32, count, round % 4 ? INPUT_NORMAL : INPUT_DAMAGED, &rng);
        REQUIRE_OK(rp_codec_encode(&codec, RP_F32, x, count, NULL, wire, &bytes));
        for (int change = 0; change < 1 + round % 3; change++)
            wire[rpi_rng_below(&rng, (uint32_t)bytes)] ^=
                (uint8_t)(1u << rpi_rng_below(&rng, 8));
        if (round % 5 == 0) bytes = rpi_rng_below(&rng, (uint32_t)bytes + 1);
        uint8_t *cut = codec_buffer(bytes);
        memcpy(cut, wire, bytes);
        rp_status status = rp_codec_decode(&codec, RP_F32, cut, bytes, count, NULL, x);
        CHECK(status == RP_OK || status == RP_CORRUPT);
        CHECK_EQ(rp_codec_decode_add(&codec, RP_F32, cut, bytes, count, NULL, x), status);
        status == RP_OK ? taken++ : refused++;
        free(x), free(wire), free(cut);
    }
    CHECK_MSG(refused > 100 && taken > 100, "%d refused, %d taken", refused, taken);
}

CASES({"known_bytes", known_bytes}, {"no_spread_needs_more_room", no_spread_needs_more_room},
      {"errors_are_those_of_the_best_levels", errors_are_those_of_the_best_levels},
      {"bits_follow_the_variance", bits_follow_the_variance},
      {"outliers_are_reached", outliers_are_reached},
      {"stochastic_rounding_is_right_on_average", stochastic_rounding_is_right_on_average},
      {"error_feedback_settles_with_all_bits", error_feedback_settles_with_all_bits},
      {"what_cannot_be_encoded_is_refused", what_cannot_be_encoded_is_refused},
      {"damaged_encodings_do_no_harm", damaged_encodings_do_no_harm})
