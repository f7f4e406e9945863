/* Layers cut into parts. */
#include "plan/stage_cut.h"

#include "base/memory.h"
#include "base/rng.h"
#include "harness/check.h"

#include <stdbool.h>

enum { MOST_LAYERS = 12, MOST_PARTS = 6 };

/* ---- the table: add a row ---- */

static const struct {
    int layers, parts;
    double costs[MOST_LAYERS];
    int first[MOST_PARTS + 1];
} known[] = {
    {4, 2, {1, 1, 1, 1}, {0, 2, 4}},
    {6, 3, {1, 2, 3, 4, 5, 6}, {0, 3, 5, 6}},    /* 6, 9, 6 */
    {5, 2, {1, 1, 1, 1, 10}, {0, 4, 5}},         /* a head as dear as ten blocks */
    {5, 4, {1, 1, 1, 1, 10}, {0, 1, 2, 4, 5}},   /* even beside it, as can be */
    {7, 3, {0, 2, 2, 2, 2, 2, 2}, {0, 3, 5, 7}}, /* an embedding costs nothing */
    {3, 3, {5, 1, 9}, {0, 1, 2, 3}},
    {4, 1, {1, 2, 3, 4}, {0, 4}},
    {4, 2, {0, 0, 0, 0}, {0, 2, 4}},
};

static void make_layers(const double *costs, int count, rpi_stage_layer *layers) {
    for (int i = 0; i < count; i++)
        layers[i] = (rpi_stage_layer){.name = "h", .cost = costs[i]};
}

static void cuts_are_those_that_are_known(void) {
    rpi_stage_layer layers[MOST_LAYERS];
    int first[MOST_PARTS + 1];
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        make_layers(known[i].costs, known[i].layers, layers);
        REQUIRE_OK(rpi_stage_cut(layers, known[i].layers, known[i].parts, first));
        double most = rpi_stage_most(layers, first, known[i].parts), wanted = 0, squares = 0;
        double wanted_squares = 0;
        wanted = rpi_stage_most(layers, known[i].first, known[i].parts);
        for (int k = 0; k < known[i].parts; k++) {
            squares += pow(rpi_stage_cost(layers, first, k), 2);
            wanted_squares += pow(rpi_stage_cost(layers, known[i].first, k), 2);
        }
        CHECK_NEAR(most, wanted, 1e-12);
        CHECK_NEAR(squares, wanted_squares, 1e-9);
        CHECK_EQ(first[0], 0);
        CHECK_EQ(first[known[i].parts], known[i].layers);
    }
}

/* ---- beside every cut that there is ---- */

typedef struct search {
    const rpi_stage_layer *layers;
    int count, parts;
    double most, squares; /* the least */
    int first[MOST_PARTS + 1];
} search;

static void look(search *s, int part) {
    if (part == s->parts) {
        double most = rpi_stage_most(s->layers, s->first, s->parts), squares = 0;
        for (int k = 0; k < s->parts; k++)
            squares += pow(rpi_stage_cost(s->layers, s->first, k), 2);
        bool better = most < s->most - 1e-12;
        if (better || (most < s->most + 1e-12 && squares < s->squares)) s->squares = squares;
        if (better) s->most = most;
        return;
    }
    int last = part == s->parts - 1;
    for (int end = last ? s->count : s->first[part] + 1;
         end <= s->count - (s->parts - 1 - part); end++) {
        s->first[part + 1] = end;
        look(s, part + 1);
    }
}

static void no_cut_is_better(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 0);
    for (int trial = 0; trial < 300; trial++) {
        rpi_stage_layer layers[MOST_LAYERS] = {{0}};
        int count = 1 + (int)(rpi_rng_u32(&rng) % MOST_LAYERS), first[MOST_PARTS + 1];
        int most_parts = count < MOST_PARTS ? count : MOST_PARTS;
        int parts = 1 + (int)(rpi_rng_u32(&rng) % (uint32_t)most_parts);
        for (int i = 0; i < count; i++) layers[i].cost = rpi_rng_u32(&rng) % 10;
        search s = {.layers = layers,
                    .count = count,
                    .parts = parts,
                    .most = INFINITY,
                    .squares = INFINITY};
        look(&s, 0);
        REQUIRE_OK(rpi_stage_cut(layers, count, parts, first));
        double squares = 0;
        for (int k = 0; k < parts; k++) {
            CHECK(first[k] < first[k + 1]);
            squares += pow(rpi_stage_cost(layers, first, k), 2);
        }
        CHECK_NEAR(rpi_stage_most(layers, first, parts), s.most, 1e-9);
        CHECK_NEAR(squares, s.squares, 1e-6);
    }
}

static void many_layers_are_cut_at_once(void) {
    static rpi_stage_layer layers[1000];
    static int first[65];
    for (int i = 0; i < 1000; i++) layers[i].cost = 1 + i % 7;
    REQUIRE_OK(rpi_stage_cut(layers, 1000, 64, first));
    CHECK(rpi_stage_most(layers, first, 64) <= 70); /* 62.5 on average */
}

/* ---- ties ---- */

static void ties_name_the_first_and_the_last(void) {
    rpi_stage_layer layers[] = {
        {"embedding", 1, "table"}, {"h.0", 2, NULL}, {"h.1", 2, "norm"},
        {"h.2", 2, "norm"},        {"h.3", 2, NULL}, {"head", 3, "table"},
    };
    int first[5];
    rpi_stage_tie ties[4];
    REQUIRE_OK(rpi_stage_cut(layers, 6, 2, first));
    CHECK_EQ(first[1], 4); /* 7 and 5; 5 and 7 is no better */
    CHECK_EQ(rpi_stage_ties(layers, 6, first, 2, ties, 4), 1);
    CHECK(strcmp(ties[0].tie, "table") == 0);
    CHECK(ties[0].first_layer == 0 && ties[0].last_layer == 5);
    CHECK(ties[0].first_part == 0 && ties[0].last_part == 1);
    REQUIRE_OK(rpi_stage_cut(layers, 6, 4, first));
    CHECK_EQ(rpi_stage_ties(layers, 6, first, 4, ties, 0), first[2] == 3 ? 2 : 1);
    REQUIRE_OK(rpi_stage_cut(layers, 6, 1, first));
    CHECK_EQ(rpi_stage_ties(layers, 6, first, 1, ties, 4), 0);
}

static void what_cannot_be_is_refused(void) {
    rpi_stage_layer layers[] = {{"a", 1, NULL}, {"b", -1, NULL}, {"c", 1, NULL}};
    int first[8];
    CHECK_FAILS(rpi_stage_cut(layers, 3, 4, first), INVALID,
                "3 layers cannot be cut into 4 parts; 1 to 3 are possible");
    CHECK_FAILS(rpi_stage_cut(layers, 1, 2, first), INVALID, "1 layer cannot");
    CHECK_FAILS(rpi_stage_cut(layers, 3, 0, first), INVALID, "into 0 parts");
    CHECK_FAILS(rpi_stage_cut(layers, 0, 1, first), INVALID, "0 layers to cut");
    CHECK_FAILS(rpi_stage_cut(layers, 3, 2, first), INVALID,
                "the cost of layer 1, b, is negative");
    layers[1].cost = NAN;
    CHECK_FAILS(rpi_stage_cut(layers, 3, 2, first), INVALID, "no number");
    layers[1].cost = 1;
    for (long n = 1; n < 9; n++) {
        rpi_memory_fail_after(n);
        rp_status status = rpi_stage_cut(layers, 3, 2, first);
        rpi_memory_fail_after(0);
        CHECK(status == (n < 4 ? RP_NOMEM : RP_OK));
    }
}

CASES({"cuts are those that are known", cuts_are_those_that_are_known},
      {"no cut is better", no_cut_is_better},
      {"many layers are cut at once", many_layers_are_cut_at_once},
      {"ties name the first and the last", ties_name_the_first_and_the_last},
      {"what cannot be is refused", what_cannot_be_is_refused})
