/* Momentum by the number of local steps, and what is told of others before the first step. */
#include "plan/local_sgd/outer_momentum.h"

#include "harness/check.h"

#include <string.h>

static void it_goes_by_the_number_of_steps(void) {
    static const struct {
        double usual;
        uint64_t every;
        double together, alone;
    } cases[] = {
        {.9, 1, .3, .3},   {.9, 20, .3, .3},  {.9, 21, .6, .3}, {.9, 50, .6, .3},
        {.9, 51, .9, .9},  {.9, 500, .9, .9}, {.5, 20, .3, .3}, {.5, 21, .5, .3},
        {.5, 100, .5, .5}, {0, 5, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_NEAR(rpi_outer_momentum(cases[i].usual, cases[i].every, true), cases[i].together,
                   1e-12);
        CHECK_NEAR(rpi_outer_momentum(cases[i].usual, cases[i].every, false), cases[i].alone,
                   1e-12);
    }
}

static bool is_told(double rate, double momentum, uint64_t every) {
    char text[RPI_OUTER_ADVICE];
    rpi_outer_momentum_advise(rate, momentum, every, true, text);
    return text[0] != '\0';
}

/* Nothing of what is taken where none is said, nor of what the documents' tables have. */
static void what_is_beyond_is_told(void) {
    for (uint64_t every = 1; every < 200; every++) {
        CHECK(!is_told(.7, rpi_outer_momentum(.9, every, true), every));
        CHECK(!is_told(1, rpi_outer_momentum(.5, every, true), every));
    }
    CHECK(!is_told(.7, .6, 10) && !is_told(1, .5, 32) && !is_told(.7, .9, 100));
    CHECK(!is_told(.3, .8, 20)); /* a lower rate bears more */
    CHECK(is_told(.7, .9, 50) && is_told(.7, .7, 20) && is_told(1, .6, 10) &&
          is_told(1, .5, 4));
    CHECK(is_told(.7, .6, 9)); /* the fewest steps bear less than 10 do */
    char text[RPI_OUTER_ADVICE];
    rpi_outer_momentum_advise(.7, .9, 10, false, text);
    CHECK_MSG(strstr(text, "outer momentum 0.9 is high for 10 local steps") &&
                  strstr(text, "7.0 times as far") && strstr(text, "take 0.5 or less") &&
                  strstr(text, "none is given it is 0.3"),
              "%s", text);
    rpi_outer_momentum_advise(1.6, .1, 9, true, text); /* no momentum is low enough */
    CHECK_MSG(strstr(text, "1.8 times as far") && strstr(text, "take 0 or less"), "%s", text);
}

CASES({"it goes by the number of steps", it_goes_by_the_number_of_steps},
      {"what is beyond is told", what_is_beyond_is_told})
