/* Rates and prices as users write them. */
#include "plan/foresight/node_rate.h"

#include "harness/check.h"

#include <stddef.h>

/* ---- the tables: add a row ---- */

/* Hours between failures of a job of so many nodes, as published. */
static const struct {
    const char *text;
    double nodes, hours, tolerance;
} known[] = {
    {"6.5/1000-node-days", 2048, 1.803, .0005}, /* 16,384 GPUs */
    {"6.50/1000-node-days", 128, 28.8, .05},    /* 1,024 GPUs */
    {"419/54d", 2048, 3.09, .005},              /* Llama 3 405B */
    {"1/3h", 7, 3, 1e-12},
    {"1/28.8s", 1, .008, 1e-12},
    {"2/node-hour", 4, .125, 1e-12},
    {"2/node-hours", 4, .125, 1e-12},
    {"1/node-year", 8766, 1, 1e-12},
    {"1/10node-days", 1, 240, 1e-9},
};

/* How it is refused; as a price, too where `price` says how. */
static const struct {
    const char *text, *rate, *price;
} mistakes[] = {
    {"6.5", "has no unit; write 6.5/1000-node-days", "has no unit; write 10.4/node-hour"},
    {"6.5/", "has no unit", "has no unit"},
    {"6.5/1000", "'1000' is no unit", "'1000' is no unit"},
    {"6.5/1000-node-weeks", "no unit; write 6.5/1000-node-days", "no unit"},
    {"6.5/0-node-days", "no unit", "no unit"},
    {"-1/node-day", "'-1/node-day' is negative", "is negative"},
    {"often", "'often' is not a rate", "is not a price"},
    {"", "is not a rate", "is not a price"},
    {"nan/node-day", "is not a rate", "is not a price"},
    {"1e999/node-day", "is not a rate", "is not a price"},
    {"0/node-day", "has to be above 0", NULL},
    {"1/0s", "'0s' is no unit", "no unit"},
    {"1/3 h", "no unit", "no unit"},
    {"1/node-dayss", "no unit", "no unit"},
    {"1e-300/1e300-node-days", "is too small", NULL},
    {"1/3h", NULL, "'3h' is no unit"},
    {"1e308/node-hour", NULL, "'1e308/node-hour' is too large: 1e+15 a node and hour at most"},
    {"1e300/1e-300-node-hours", NULL, "too large"},
};

static void known_rates(void) {
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        rpi_node_rate rate = {0};
        CHECK_OK(rpi_node_rate_parse(known[i].text, &rate));
        CHECK_NEAR(1 / rpi_node_rate_of(&rate, known[i].nodes) / 3600, known[i].hours,
                   known[i].tolerance);
    }
}

static void prices_are_of_node_hours(void) {
    double price = 0;
    CHECK_OK(rpi_price_parse("10.4/node-hour", &price));
    CHECK_NEAR(price, 10.4, 1e-12);
    CHECK_OK(rpi_price_parse("240/node-day", &price));
    CHECK_NEAR(price, 10, 1e-12);
    CHECK_OK(rpi_price_parse("0/node-hour", &price));
    CHECK_NEAR(price, 0, 0);
}

static void mistakes_are_named(void) {
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        rpi_node_rate rate;
        double price;
        if (mistakes[i].rate)
            CHECK_FAILS(rpi_node_rate_parse(mistakes[i].text, &rate), INVALID,
                        mistakes[i].rate);
        if (mistakes[i].price)
            CHECK_FAILS(rpi_price_parse(mistakes[i].text, &price), INVALID, mistakes[i].price);
    }
}

CASES({"known rates", known_rates}, {"prices are of node hours", prices_are_of_node_hours},
      {"mistakes are named", mistakes_are_named})
