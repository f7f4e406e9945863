/* Places of buckets on their way: ordinary ones are used again, tables have their own. */
#include "base/memory.h"
#include "harness/check.h"
#include "train/strategies/passing_memory.h"

static rpi_bucket list[6];

/* Buckets of so many elements each. */
static rpi_buckets of_counts(const int64_t *counts, int count) {
    rpi_buckets buckets = {.buckets = list, .count = count};
    int64_t first = 0;
    for (int i = 0; i < count; i++) {
        list[i] = (rpi_bucket){.first = first, .count = counts[i]};
        first += counts[i];
    }
    return buckets;
}

static void ordinary_places_are_used_again(void) {
    const int64_t counts[] = {100, 90, 4000, 80, 70};
    rpi_buckets buckets = of_counts(counts, 5);
    rpi_passing_memory memory = {0};
    REQUIRE_OK(rpi_passing_memory_open(&buckets, NULL, "gradients", &memory));
    CHECK_OK(rpi_passing_memory_take(&memory, 0));
    CHECK_OK(rpi_passing_memory_take(&memory, 1));
    float *place = memory.of_buckets[0];
    CHECK(place && memory.of_buckets[1] && place != memory.of_buckets[1]);
    for (int i = 0; i < 100; i++) place[i] = 1;
    rpi_passing_memory_give(&memory, 0);
    CHECK(!memory.of_buckets[0]);
    CHECK_OK(rpi_passing_memory_take(&memory, 3));
    CHECK(memory.of_buckets[3] == place);
    CHECK_OK(rpi_passing_memory_take(&memory, 2));
    for (int i = 0; i < 4000; i++) memory.of_buckets[2][i] = 1;
    CHECK_EQ(memory.elements, 90 + 80 + 4000);
    float *table = memory.of_buckets[2];
    rpi_passing_memory_give(&memory, 2);
    CHECK(!memory.of_buckets[2]);
    CHECK_OK(rpi_passing_memory_take(&memory, 2)); /* where it lay */
    CHECK(memory.of_buckets[2] == table);
    rpi_passing_memory_give(&memory, 2);
    rpi_passing_memory_give(&memory, 2); /* once more is nothing */
    CHECK_OK(rpi_passing_memory_take(&memory, 4));
    CHECK_EQ(memory.elements, 90 + 80 + 70);
    CHECK_EQ(memory.most, 90 + 80 + 4000);
    rpi_passing_memory_close(&memory);
}

/* A table at each end at most; models without such have none. */
static void tables_are_told_apart(void) {
    static const struct {
        int64_t counts[6];
        int count, places;
        int64_t takes;
    } rows[] = {{{100, 90, 4000, 80, 70}, 5, 3, 4000 + 300},
                {{4000, 90, 100, 80, 4000}, 5, 2, 8000 + 200},
                {{100, 90, 80}, 3, 4, 300},
                {{100, 4000}, 2, 4, 8000},
                {{100}, 1, 4, 100},
                {{4000, 4000, 4000, 100, 90, 80}, 6, 2, 8000}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rpi_buckets buckets = of_counts(rows[i].counts, rows[i].count);
        CHECK_EQ(rpi_passing_memory_foresee(&buckets, rows[i].places), rows[i].takes);
    }
}

static void memory_may_run_out(void) {
    const int64_t counts[] = {100, 90};
    rpi_buckets buckets = of_counts(counts, 2);
    rpi_passing_memory memory = {0};
    REQUIRE_OK(rpi_passing_memory_open(&buckets, NULL, "gradients", &memory));
    rpi_memory_fail_after(1);
    CHECK(rpi_passing_memory_take(&memory, 0) == RP_NOMEM);
    rpi_memory_fail_after(0);
    CHECK(!memory.of_buckets[0]);
    CHECK_OK(rpi_passing_memory_take(&memory, 0));
    rpi_passing_memory_close(&memory);
}

CASES({"ordinary places are used again", ordinary_places_are_used_again},
      {"tables are told apart", tables_are_told_apart},
      {"memory may run out", memory_may_run_out})
