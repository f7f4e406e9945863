/* Node hours, money and energy, beside what is published. */
#include "plan/foresight/offer.h"

#include "harness/check.h"

/* ---- the table: add a row. -1: not asked ---- */

static const struct {
    const char *text;
    double hours, node_hours, cost, kwh; /* known */
    double tolerance;                    /* of them, relative: as they are printed */
} known[] = {
    /* BERT-base on 2 hosts, 100,000 steps of 4096 */
    {"nodes=2,steps=100000,batch=4096,measured-batch=1024,iterations-per-s=1.18", -1, 188.3, -1,
     -1, .0003},
    /* the same in two phases of steps */
    {"nodes=2,steps=90000,batch=4096,measured-batch=1024,iterations-per-s=1.18; steps=10000,"
     "batch=4096,measured-batch=1024,iterations-per-s=1.18",
     -1, 188.3, -1, -1, .0003},
    /* answers in a text on clouds: hours from bills */
    {"slow: price=10.4/node-hour, cost=61.7", 5.93, 5.93, 61.7, -1, .001},
    {"slow, 4 bits: price=10.4/node-hour, cost=18.6", 1.79, 1.79, 18.6, -1, .002},
    {"fast: price=24.5/node-hour, cost=49.0", 2.00, 2.00, 49.0, -1, .0001},
    /* LLaMA 7B: GPU hours, 400 W, 1.1 */
    {"nodes=1,hours=82432,watts=400,pue=1.1", -1, 82432, -1, 36300, .001},
    /* GPT-2 1.5B: 24 h of 8 H100, 672 $ */
    {"nodes=8,hours=24,price=3.5/node-hour", 24, 192, 672, -1, 1e-9},
    {"tokens=10e9,tokens-per-s=1.773e6", 94 / 60., -1, -1, -1, .001},
    {"hours=97,goodput=.97", 100, -1, -1, -1, 1e-9},
};

static void known_answers(void) {
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        rpi_cost_offer o;
        double t = known[i].tolerance;
        REQUIRE_OK(rpi_offer_parse(known[i].text, 1, -1, &o));
        if (known[i].hours >= 0) CHECK_NEAR(o.hours, known[i].hours, t * known[i].hours);
        if (known[i].node_hours >= 0)
            CHECK_NEAR(o.node_hours, known[i].node_hours, t * known[i].node_hours);
        if (known[i].cost >= 0) CHECK_NEAR(o.cost, known[i].cost, t * known[i].cost);
        if (known[i].kwh >= 0) CHECK_NEAR(o.kwh, known[i].kwh, t * known[i].kwh);
    }
}

static void tokens_follow_from_samples(void) {
    rpi_cost_offer o;
    CHECK_OK(
        rpi_offer_parse("a b : steps=10,batch=4,sequence=512,iterations-per-s=1", 3, 2, &o));
    CHECK(o.tokens == 10 * 4 * 512 && strcmp(o.name, "a b") == 0 && o.nodes == 3);
    CHECK_NEAR(o.cost, 3 * 2 * 10 / 3600., 1e-12);
}

static void break_even_is_where_costs_meet(void) {
    rpi_cost_offer o[3];
    CHECK_OK(rpi_offer_parse("price=10.4/node-hour,cost=61.7", 1, -1, &o[0]));
    CHECK_OK(rpi_offer_parse("price=10.4/node-hour,cost=18.6", 1, -1, &o[1]));
    CHECK_OK(rpi_offer_parse("price=24.5/node-hour,cost=49.0", 1, -1, &o[2]));
    CHECK_NEAR(o[0].hours / o[1].hours, 3.32, .005); /* published: times as fast */
    CHECK_NEAR(o[2].cost / o[1].cost, 2.6, .05);     /* and as cheap */
    for (int i = 0; i < 3; i++) {
        double price = rpi_offer_break_even(o, 3, i);
        CHECK_NEAR(price * o[i].node_hours, i == 1 ? 49.0 : 18.6, 1e-9);
    }
    CHECK(rpi_offer_break_even(o, 1, 0) < 0);
    o[1].cost = -1;
    CHECK(rpi_offer_break_even(o, 3, 0) < 0);
}

/* ---- the table of mistakes: add a row ---- */

static const struct {
    const char *text, *message;
} mistakes[] = {
    {"", "is not KEY=VALUE"},
    {"hours", "'hours' is not KEY=VALUE"},
    {"hours=5,", "'' is not KEY=VALUE"},
    {"huors=5", "no 'huors'; did you mean 'hours'"},
    {"hours=-5", "hours: '-5' is not above 0"},
    {"hours=0", "hours: '0' is not above 0"},
    {"hours=5h", "hours: '5h' is not a number"},
    {"price=10.4,hours=5", "price: '10.4' has no unit; write 10.4/node-hour"},
    {"price=-1/node-hour,hours=5", "is negative"},
    {"price=10.4/node-hour", "say one of hours, cost"},
    {"hours=5,tokens-per-s=3", "say only one of"},
    {"cost=5", "where there is a price"},
    {"cost=5,price=0/node-hour", "where there is a price"},
    {"tokens-per-s=5", "tokens=2e12"},
    {"iterations-per-s=5", "steps=100000"},
    {"steps=5,iterations-per-s=1,measured-batch=3", "goes with batch"},
    {"hours=1;price=3/node-hour", "say one of hours"},
    {"hours=1,goodput=1.1", "above 1"},
    {"a name that is longer than it may be: hours=1", "at most 31 letters"},
    {"hours=1e308,nodes=1e308", "too large"},
};

static void mistakes_are_named(void) {
    rpi_cost_offer o;
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++)
        CHECK_FAILS(rpi_offer_parse(mistakes[i].text, 1, -1, &o), INVALID, mistakes[i].message);
}

CASES({"known answers", known_answers},
      {"tokens follow from samples", tokens_follow_from_samples},
      {"break-even is where costs meet", break_even_is_where_costs_meet},
      {"mistakes are named", mistakes_are_named})
