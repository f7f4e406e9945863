/* Stochastic rounding: the normative map from names to random numbers, and its statistics. */
#include "codec/quant_kernels.h"

#include "codec_cases.h"

static const rpi_quant_kernels *const kernels[RPI_ISA_COUNT] = {
    &rpi_quant_scalar,
#if defined(__x86_64__)
    &rpi_quant_avx2,
    &rpi_quant_avx512,
#elif defined(__aarch64__)
    &rpi_quant_neon,
#endif
};

static rp_codec stochastic(const char *text) {
    rp_codec codec = {0};
    CHECK_OK(rp_codec_parse(text, &codec));
    codec.rounding = RP_STOCHASTIC;
    return codec;
}

/* With levels 0 and 1 and a value between, the level tells on which side of it the random
 * number lies: bisection reads the number itself. */
static int number_of(const rp_codec *codec, rp_encode_context context, uint64_t element) {
    int low = 0, high = 65536;
    while (high - low > 1) {
        int middle = (low + high) / 2; /* x rounds up when number + 0.5 >= 65536 - 65536 x */
        float x[3] = {0, 255, 1.0f - (float)middle * 0x1p-16f};
        uint8_t wire[11];
        context.first = element - 2;
        CHECK_OK(rp_codec_encode(codec, RP_F32, x, 3, &context, wire, NULL));
        if (wire[10] == 1)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Made with another implementation of the document (Python integers). */
static void known_numbers(void) {
    static const uint16_t at_0[16] = {0xc4a2, 0x9888, 0xf468, 0x5b0e, 0x4e33, 0x200c,
                                      0xc579, 0xab8a, 0x2020, 0xe4dd, 0x859c, 0x0ad2,
                                      0x4115, 0x57b9, 0x3a80, 0x47ba};
    static const uint16_t at_2_35[12] = {0xa3a1, 0xcbe4, 0xbf08, 0x0f49, 0xabfa, 0x9477,
                                         0xf8a5, 0xb4e7, 0x040a, 0xe7fb, 0x57ef, 0x190a};
    rp_codec q8 = stochastic("q8");
    rp_encode_context context = {.seed = 0x123456789abcdef0, .step = 7, .tensor = 3, .role = 1};
    for (uint64_t i = 2; i < 16; i++) CHECK_EQ(number_of(&q8, context, i), at_0[i]);
    uint64_t base = (UINT64_C(1) << 35) - 4;
    for (uint64_t i = 0; i < 12; i++) CHECK_EQ(number_of(&q8, context, base + i), at_2_35[i]);
}

static void known_levels(void) {
    static const float x[12] = {0,      255,      0.5f,  100.25f, 100.75f, 17.5f,
                                3.125f, 200.875f, 64.5f, 64.5f,   64.5f,   64.5f};
    static const uint8_t wanted[20] = {0, 0,   0,   0,  0, 0,   0x80, 0x3f, 0,  255,
                                       0, 100, 101, 17, 3, 201, 64,   65,   65, 65};
    rp_codec q8 = stochastic("q8");
    uint8_t wire[20];
    rp_encode_context context = {.seed = 5, .step = 2, .tensor = 9, .role = 3, .first = 1000};
    REQUIRE_OK(rp_codec_encode(&q8, RP_F32, x, 12, &context, wire, NULL));
    for (int i = 0; i < 20; i++) CHECK_EQ(wire[i], wanted[i]);
}

/* Block numbers carry into their upper word in the middle of a vector. */
static void isas_draw_the_same_numbers(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 5);
    for (int round = 0; round < 200; round++) {
        rpi_quant_stream stream = {{rpi_rng_u32(&rng), rpi_rng_u32(&rng)},
                                   {rpi_rng_u32(&rng), rpi_rng_u32(&rng)}};
        uint64_t block = rpi_rng_u32(&rng);
        if (round % 2) block = UINT64_C(0x2fffffff0) + rpi_rng_below(&rng, 32);
        uint16_t wanted[256], got[256];
        kernels[0]->random(&stream, block, 32, wanted);
        for (int isa = 1; isa < RPI_ISA_COUNT && isa <= (int)rpi_cpu_isa_max(); isa++) {
            kernels[isa]->random(&stream, block, 32, got);
            CHECK(codec_same(wanted, got, sizeof got));
        }
    }
}

/* No context is seed 0, step 0, tensor 0; every name changes the numbers. */
static void names_key_the_numbers(void) {
    rp_codec q4 = stochastic("q4");
    float x[512];
    uint8_t wire[7][264];
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 6);
    codec_fill(x, RP_F32, 512, INPUT_NORMAL, &rng);
    const rp_encode_context contexts[] = {
        {0},           {.seed = 1}, {.seed = 1ull << 32}, {.step = 1}, {.step = 1ull << 32},
        {.tensor = 1}, {.role = 1}};
    REQUIRE_OK(rp_codec_encode(&q4, RP_F32, x, 512, NULL, wire[0], NULL));
    for (int i = 1; i < 7; i++)
        REQUIRE_OK(rp_codec_encode(&q4, RP_F32, x, 512, &contexts[i], wire[i], NULL));
    for (int i = 0; i < 7; i++)
        for (int k = 0; k < i; k++) CHECK(!codec_same(wire[i], wire[k], 264));
    uint8_t again[264];
    REQUIRE_OK(rp_codec_encode(&q4, RP_F32, x, 512, &contexts[0], again, NULL));
    CHECK(codec_same(again, wire[0], 264));
}

/* Unbiased: over T independent steps the mean of element i, in steps of the quantiser, differs
 * from x by a standard deviation of sqrt(f (1 - f) / T), f the place between two levels.
 * Confidence: the seed is fixed, so the test is deterministic; with any other seed a correct
 * quantiser passes with probability over 1 - 512 * 1.6e-6 - 6e-5 > 0.999 a number of bits
 * (4.8 sigma an element, 4 sigma for the mean of all). */
enum { STEPS = 2000, ELEMENTS = 512 };

static void unbiased_with(int bits) {
    rp_codec codec = stochastic("q4");
    codec.bits = (uint8_t)bits;
    rpi_rng rng = rpi_rng_make(42, RPI_RNG_TEST, (uint64_t)bits);
    float x[ELEMENTS], y[ELEMENTS], min, unit;
    double sum[ELEMENTS] = {0}, total = 0, total_variance = 0;
    uint8_t wire[ELEMENTS + 8];
    size_t bytes = rp_codec_encoded_bytes(&codec, RP_F32, ELEMENTS);
    codec_fill(x, RP_F32, ELEMENTS, INPUT_NORMAL, &rng);
    for (uint64_t step = 0; step < STEPS; step++) {
        rp_encode_context context = {.seed = 1, .step = step, .tensor = 4};
        REQUIRE_OK(rp_codec_encode(&codec, RP_F32, x, ELEMENTS, &context, wire, NULL));
        REQUIRE_OK(rp_codec_decode(&codec, RP_F32, wire, bytes, ELEMENTS, NULL, y));
        for (int i = 0; i < ELEMENTS; i++) sum[i] += y[i];
    }
    memcpy(&min, wire, 4), memcpy(&unit, wire + 4, 4);
    for (int i = 0; i < ELEMENTS; i++) {
        double place = ((double)x[i] - min) / unit, f = place - floor(place);
        double bias = (sum[i] / STEPS - x[i]) / unit, variance = f * (1 - f) / STEPS;
        CHECK_NEAR(bias, 0.0, 4.8 * sqrt(variance) + 1e-4);
        total += bias;
        total_variance += variance;
    }
    CHECK_NEAR(total, 0.0, 4 * sqrt(total_variance));
}

static void stochastic_rounding_is_unbiased(void) {
    for (int bits = 1; bits <= 8; bits++) unbiased_with(bits);
}

/* All 65536 numbers, so exactly: the chance to round up is f within 2^-17 up to 7 bits and
 * within 2^-16 at 8, and an element that lies on a level (below 128) stays there. */
static void bias_is_below_the_stated_bound(void) {
    static uint16_t all[65536];
    static float x[65536];
    static uint8_t levels[65536];
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 7);
    for (int i = 0; i < 65536; i++) all[i] = (uint16_t)i;
    for (int round = 0; round < 64; round++) {
        float value = rpi_rng_uniform(&rng) * (round % 2 ? 254 : 127);
        if (round % 4 == 0) value = floorf(value);
        for (int i = 0; i < 65536; i++) x[i] = value;
        rpi_quant_run run = {
            .x = x, .random = all, .count = 65536, .bits = 8, .scale = {0, 1}, .out = levels};
        kernels[rpi_cpu_isa()]->quantise(&run);
        double mean = 0;
        for (int i = 0; i < 65536; i++) mean += levels[i] / 65536.0;
        CHECK_NEAR(mean, value, value < 128 ? 0x1p-17 + 0x1p-24 : 0x1p-16);
        if (round % 4 == 0 && value < 128) CHECK(mean == value);
    }
}

CASES({"known_numbers", known_numbers}, {"known_levels", known_levels},
      {"isas_draw_the_same_numbers", isas_draw_the_same_numbers},
      {"names_key_the_numbers", names_key_the_numbers},
      {"stochastic_rounding_is_unbiased", stochastic_rounding_is_unbiased},
      {"bias_is_below_the_stated_bound", bias_is_below_the_stated_bound})
