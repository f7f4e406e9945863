/* Combinations against plain arrays of fractions, and expressions against themselves. */
#include "plan/combination.h"

#include "base/memory.h"
#include "base/rng.h"
#include "harness/check.h"
#include "plan/expression.h"

enum { RANKS = 12 };

typedef struct plain {
    double coefficient[RANKS]; /* of small numbers: exact enough to tell them apart */
} plain;

static double coefficient_at(const rpi_combinations *pool, rpi_combination it, int rank) {
    for (int i = 0; i < it.spans; i++) {
        const rpi_span *span = &pool->spans[it.first + (size_t)i];
        if (rank >= span->first && rank <= span->last)
            return (double)span->times / (double)span->over;
    }
    return 0;
}

static void check_same(const rpi_combinations *pool, rpi_combination it, const plain *p) {
    for (int rank = 0; rank < RANKS; rank++)
        CHECK_NEAR(coefficient_at(pool, it, rank), p->coefficient[rank], 1e-9);
    for (int i = 0; i < it.spans; i++) { /* rising, apart, joined where they can be */
        const rpi_span *a = &pool->spans[it.first + (size_t)i];
        CHECK(a->first <= a->last && a->times != 0 && a->over > 0);
        if (i + 1 == it.spans) break;
        CHECK(a[1].first > a->last);
        CHECK(a[1].first > a->last + 1 || a[1].times != a->times || a[1].over != a->over);
    }
}

static void random_sums(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 0);
    for (int trial = 0; trial < 2000; trial++) {
        rpi_combinations pool = {0};
        rpi_combination made[8];
        plain wanted[8] = {{{0}}};
        for (int i = 0; i < 8; i++) {
            int rank = (int)rpi_rng_below(&rng, RANKS);
            REQUIRE_OK(rpi_combine_one(&pool, rank, &made[i]));
            wanted[i].coefficient[rank] = 1;
        }
        for (int turn = 0; turn < 20; turn++) {
            int a = (int)rpi_rng_below(&rng, 8), b = (int)rpi_rng_below(&rng, 8);
            rpi_fraction weight = {(int32_t)rpi_rng_below(&rng, 3) + 1,
                                   (int32_t)rpi_rng_below(&rng, 3) + 1};
            rpi_combination weighed;
            if (rpi_combine_weigh(&pool, made[b], weight, &weighed) != RP_OK) break;
            if (rpi_combine_add(&pool, made[a], weighed, &made[a]) != RP_OK) break;
            plain of_b = wanted[b];
            for (int r = 0; r < RANKS; r++)
                wanted[a].coefficient[r] += of_b.coefficient[r] * weight.times / weight.over;
            if (wanted[a].coefficient[0] > 1e3) break;
            check_same(&pool, made[a], &wanted[a]);
        }
        rpi_combinations_free(&pool);
    }
}

static void opposites_leave_nothing(void) {
    rpi_combinations pool = {0};
    rpi_combination one, minus, none;
    REQUIRE_OK(rpi_combine_one(&pool, 3, &one));
    REQUIRE_OK(rpi_combine_weigh(&pool, one, (rpi_fraction){-2, 2}, &minus));
    REQUIRE_OK(rpi_combine_add(&pool, one, minus, &none));
    CHECK_EQ(none.spans, 0);
    char text[64];
    CHECK(strcmp(rpi_combination_text(&pool, none, text, sizeof text), "nobody") == 0);
    CHECK(strcmp(rpi_combination_text(&pool, minus, text, sizeof text), "-1 x rank 3") == 0);
    rpi_combinations_free(&pool);
}

static void what_overflows_is_said(void) {
    rpi_combinations pool = {0};
    rpi_combination it;
    REQUIRE_OK(rpi_combine_one(&pool, 0, &it));
    for (int i = 0; i < 2; i++)
        REQUIRE_OK(rpi_combine_weigh(&pool, it, (rpi_fraction){INT32_MAX, 1}, &it));
    CHECK_FAILS(rpi_combine_weigh(&pool, it, (rpi_fraction){INT32_MAX, 1}, &it), INTERNAL,
                "63 bits");
    rpi_combinations_free(&pool);
}

static void hearsay_is_counted_once(void) {
    rpi_combinations pool = {0};
    rpi_combination heard, more;
    REQUIRE_OK(rpi_combine_one(&pool, 1, &heard));
    REQUIRE_OK(rpi_combine_one(&pool, 2, &more));
    REQUIRE_OK(rpi_combine_unite(&pool, heard, more, &heard));
    REQUIRE_OK(rpi_combine_unite(&pool, heard, more, &heard));
    CHECK(rpi_combination_is(&pool, heard, 1, 2, (rpi_fraction){1, 1}));
    CHECK(!rpi_combination_is(&pool, heard, 1, 2, (rpi_fraction){1, 2}));
    CHECK(!rpi_combination_is_single(&pool, heard));
    rpi_combinations_free(&pool);
}

/* Five lists of ranks, of which four are told; and as much of them as there is room for. */
static void the_text_names_ranks(void) {
    static const char whole[] = "rank 0, ranks 2-3, 1/2 x rank 5, 3 x rank 7, ...";
    rpi_combinations pool = {0};
    rpi_combination sum, one;
    static const struct {
        int rank;
        rpi_fraction weight;
    } more[] = {{2, {1, 1}}, {3, {1, 1}}, {5, {1, 2}}, {7, {3, 1}}, {9, {1, 1}}};
    REQUIRE_OK(rpi_combine_one(&pool, 0, &sum));
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
        REQUIRE_OK(rpi_combine_one(&pool, more[i].rank, &one));
        REQUIRE_OK(rpi_combine_weigh(&pool, one, more[i].weight, &one));
        REQUIRE_OK(rpi_combine_add(&pool, sum, one, &sum));
    }
    CHECK_EQ(rpi_combination_lowest(&pool, sum), 0);
    CHECK_EQ(rpi_combination_highest(&pool, sum), 9);
    for (size_t bytes = 1; bytes <= sizeof whole; bytes++) {
        char text[sizeof whole + 1];
        memset(text, '#', sizeof text);
        rpi_combination_text(&pool, sum, text, bytes);
        CHECK_MSG(strncmp(text, whole, bytes - 1) == 0 && !text[bytes - 1], "'%.*s'",
                  (int)bytes, text);
        CHECK(text[bytes] == '#');
    }
    rpi_combinations_free(&pool);
}

static int number(rpi_expressions *known, rpi_operation operation, int64_t left,
                  int64_t right) {
    int it = -1;
    CHECK_OK(rpi_expression_number(known, operation, left, right, &it));
    return it;
}

static void the_same_expression_has_the_same_number(void) {
    rpi_expressions known = {0};
    int first[200];
    for (int i = 0; i < 200; i++) first[i] = number(&known, RPI_OPERATION_INPUT, i, 7);
    for (int i = 0; i < 200; i++) CHECK_EQ(number(&known, RPI_OPERATION_INPUT, i, 7), first[i]);
    int a = first[0], b = first[1];
    int sum = number(&known, RPI_OPERATION_ADDED, a, b);
    CHECK(sum != number(&known, RPI_OPERATION_ADDED, b, a));
    CHECK_EQ(number(&known, RPI_OPERATION_ROUNDED, a, 0), a);
    int rounded = number(&known, RPI_OPERATION_ROUNDED, sum, 0);
    CHECK(rounded != sum);
    CHECK_EQ(number(&known, RPI_OPERATION_ROUNDED, rounded, 0), rounded);
    rpi_expressions_free(&known);
}

CASES({"random sums", random_sums}, {"opposites leave nothing", opposites_leave_nothing},
      {"what overflows is said", what_overflows_is_said},
      {"hearsay is counted once", hearsay_is_counted_once},
      {"the text names ranks", the_text_names_ranks},
      {"the same expression has the same number", the_same_expression_has_the_same_number})
