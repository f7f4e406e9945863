/* Which token follows: by hand, and by frequencies. */
#include "train/generation/token_choice.h"

#include "harness/check.h"

#include <math.h>

enum { COUNT = 6, DRAWS = 20000 };

/* softmax: 0.1, 0.4, 0.05, 0.25, 0.05, 0.15 */
static const double shares[COUNT] = {0.1, 0.4, 0.05, 0.25, 0.05, 0.15};

static void logits_of(float logits[COUNT]) {
    for (int i = 0; i < COUNT; i++) logits[i] = (float)(3 + log(shares[i]));
}

static uint32_t choose(rpi_token_choice choice, const float *logits, const bool *allowed,
                       uint64_t index) {
    rpi_token_candidate room[COUNT];
    uint32_t token = UINT32_MAX;
    CHECK_OK(rpi_token_choose(&choice, logits, COUNT, allowed, index, room, &token));
    return token;
}

/* Frequencies follow wanted[]; never what has none. */
static void check_shares(rpi_token_choice choice, const bool *allowed,
                         const double wanted[COUNT]) {
    float logits[COUNT];
    int seen[COUNT] = {0};
    logits_of(logits);
    choice.seed = check_seed();
    for (uint64_t i = 0; i < DRAWS; i++) {
        uint32_t token = choose(choice, logits, allowed, i);
        REQUIRE(token < COUNT);
        seen[token]++;
    }
    for (int i = 0; i < COUNT; i++) {
        double deviation = sqrt(wanted[i] * (1 - wanted[i]) / DRAWS);
        CHECK_NEAR(seen[i] / (double)DRAWS, wanted[i], 5.5 * deviation);
    }
}

static void draws_follow_the_probabilities(void) {
    check_shares((rpi_token_choice){.temperature = 1, .top_p = 1}, NULL, shares);
    check_shares((rpi_token_choice){.temperature = 1, .top_k = 100, .top_p = 1}, NULL, shares);
    double squares[COUNT], sum = 0;
    for (int i = 0; i < COUNT; i++) sum += shares[i] * shares[i];
    for (int i = 0; i < COUNT; i++) squares[i] = shares[i] * shares[i] / sum;
    check_shares((rpi_token_choice){.temperature = 0.5, .top_p = 1}, NULL, squares);
}

static void fewer_tokens_are_drawn_from(void) {
    check_shares((rpi_token_choice){.temperature = 1, .top_k = 3, .top_p = 1}, NULL,
                 (double[]){0, 0.5, 0, 0.3125, 0, 0.1875});
    /* 0.4 + 0.25 fall short of 0.7; 0.15 more do not */
    check_shares((rpi_token_choice){.temperature = 1, .top_p = 0.7}, NULL,
                 (double[]){0, 0.5, 0, 0.3125, 0, 0.1875});
    /* of the first two together 0.65: 0.61 and 0.39 */
    check_shares((rpi_token_choice){.temperature = 1, .top_k = 2, .top_p = 0.6}, NULL,
                 (double[]){0, 1, 0, 0, 0, 0});
    check_shares((rpi_token_choice){.temperature = 1, .top_p = 1e-9}, NULL,
                 (double[]){0, 1, 0, 0, 0, 0});
    check_shares((rpi_token_choice){.temperature = 1, .top_p = 1},
                 (bool[]){true, false, false, true, false, true},
                 (double[]){0.2, 0, 0, 0.5, 0, 0.3});
}

static void the_likeliest_is_taken_without_heat(void) {
    rpi_token_choice greedy = {.temperature = 0, .top_k = 2, .top_p = 0.5};
    float logits[COUNT] = {1, 5, -INFINITY, 5, 4, 0};
    CHECK_EQ(choose(greedy, logits, NULL, 0), 1); /* of equal ones the lower */
    CHECK_EQ(choose(greedy, logits, (bool[]){true, false, true, false, true, true}, 0), 4);
    rpi_token_choice drawn = {.temperature = 1, .top_k = 1, .top_p = 1};
    for (uint64_t i = 0; i < 50; i++) CHECK_EQ(choose(drawn, logits, NULL, i), 1);
}

static void the_same_seed_gives_the_same(void) {
    float logits[COUNT];
    int other = 0;
    logits_of(logits);
    for (uint64_t i = 0; i < 200; i++) {
        rpi_token_choice choice = {.temperature = 1, .top_p = 1, .seed = 7};
        uint32_t token = choose(choice, logits, NULL, i);
        CHECK_EQ(choose(choice, logits, NULL, i), token);
        choice.seed = 8;
        other += choose(choice, logits, NULL, i) != token;
    }
    CHECK(other > 50);
}

static void logits_that_are_no_numbers_are_told(void) {
    rpi_token_choice choice = {.temperature = 1, .top_p = 1};
    rpi_token_candidate room[COUNT];
    uint32_t token = 0;
    float logits[COUNT] = {0, 0, NAN, 0, 0, 0};
    CHECK_FAILS(rpi_token_choose(&choice, logits, COUNT, NULL, 0, room, &token), CORRUPT,
                "the model's logit of token 2 is NaN");
    logits[2] = INFINITY;
    CHECK_FAILS(rpi_token_choose(&choice, logits, COUNT, NULL, 0, room, &token), CORRUPT,
                "the model's logit of token 2 is infinite");
    for (int i = 0; i < COUNT; i++) logits[i] = -INFINITY;
    CHECK_FAILS(rpi_token_choose(&choice, logits, COUNT, NULL, 0, room, &token), CORRUPT,
                "the model gives no token a chance");
}

CASES({"draws follow the probabilities", draws_follow_the_probabilities},
      {"fewer tokens are drawn from", fewer_tokens_are_drawn_from},
      {"the likeliest is taken without heat", the_likeliest_is_taken_without_heat},
      {"the same seed gives the same", the_same_seed_gives_the_same},
      {"logits that are no numbers are told", logits_that_are_no_numbers_are_told})
