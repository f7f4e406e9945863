#include "base/rng.h"

#include "harness/check.h"

/* Known answers published with Random123 (kat_vectors, philox4x32 10). */
static void philox_known_answers(void) {
    static const struct {
        uint32_t counter[4], key[2], wanted[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        uint32_t out[4];
        rp_philox4x32(known[i].counter, known[i].key, out);
        for (int word = 0; word < 4; word++) CHECK_EQ(out[word], known[i].wanted[word]);
    }
}

static void streams_differ_by_name(void) {
    rpi_rng a = rpi_rng_make(1, RPI_RNG_INIT, 7);
    rpi_rng same = rpi_rng_make(1, RPI_RNG_INIT, 7);
    rpi_rng others[] = {rpi_rng_make(2, RPI_RNG_INIT, 7), rpi_rng_make(1, RPI_RNG_TEST, 7),
                        rpi_rng_make(1, RPI_RNG_INIT, 8)};
    int equal[3] = {0};
    for (int i = 0; i < 100; i++) {
        uint32_t word = rpi_rng_u32(&a);
        CHECK_EQ(word, rpi_rng_u32(&same));
        for (int k = 0; k < 3; k++) equal[k] += word == rpi_rng_u32(&others[k]);
    }
    for (int k = 0; k < 3; k++) CHECK_EQ(equal[k], 0);
}

static void normal_has_mean_0_and_variance_1(void) {
    rpi_rng rng = rpi_rng_make(5, RPI_RNG_TEST, 0);
    enum { N = 200000 };
    double sum = 0, squares = 0;
    for (int i = 0; i < N; i++) {
        double x = rpi_rng_normal(&rng);
        sum += x;
        squares += x * x;
    }
    CHECK_NEAR(sum / N, 0, 5 / sqrt(N)); /* five standard errors, fixed seed */
    CHECK_NEAR(squares / N, 1, 5 * sqrt(2.0 / N));
}

/* Wherever a stream is begun, what comes is what came there when all was drawn. */
static void streams_are_sought(void) {
    enum { N = 40 };
    uint32_t all[N];
    rpi_rng rng = rpi_rng_make(5, RPI_RNG_TEST, 1);
    for (int i = 0; i < N; i++) all[i] = rpi_rng_u32(&rng);
    for (int from = 0; from < N; from++) {
        rpi_rng_seek(&rng, (uint64_t)from);
        for (int i = from; i < N; i++) CHECK_EQ(rpi_rng_u32(&rng), all[i]);
    }
}

static void below_is_within_and_even(void) {
    rpi_rng rng = rpi_rng_make(6, RPI_RNG_TEST, 0);
    int seen[7] = {0};
    for (int i = 0; i < 70000; i++) {
        uint32_t value = rpi_rng_below(&rng, 7);
        REQUIRE(value < 7);
        seen[value]++;
    }
    for (int i = 0; i < 7; i++) CHECK_NEAR(seen[i], 10000, 500);
}

CASES({"philox known answers", philox_known_answers},
      {"streams differ by name", streams_differ_by_name},
      {"normal has mean 0 and variance 1", normal_has_mean_0_and_variance_1},
      {"streams are sought", streams_are_sought},
      {"below is within and even", below_is_within_and_even})
