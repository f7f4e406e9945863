/* Against a plain array, while members come and go. */
#include "base/rank_set.h"

#include "base/rng.h"
#include "harness/check.h"

enum { WORLD = 200 };

static int next_of(const bool *members, int rank) {
    while (rank < WORLD && !members[rank]) rank++;
    return rank < WORLD ? rank : -1;
}

static void members_are_found_in_order(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 0);
    rpi_rank_set set;
    bool members[WORLD] = {false};
    REQUIRE_OK(rpi_rank_set_make(WORLD, &set));
    for (int turn = 0; turn < 2000; turn++) {
        int rank = (int)rpi_rng_below(&rng, WORLD), from = (int)rpi_rng_below(&rng, WORLD + 1);
        members[rank] = rpi_rng_below(&rng, 4) == 0; /* few, so that words are empty */
        if (members[rank])
            rpi_rank_set_put(&set, rank);
        else
            rpi_rank_set_remove(&set, rank);
        CHECK_EQ(rpi_rank_set_next(&set, from), next_of(members, from));
    }
    rpi_rank_set_free(&set);
    CHECK_EQ(rpi_rank_set_next(&set, 0), -1);
    rpi_rank_set_free(&set);
}

static void worlds_fill_words(void) {
    static const int worlds[] = {1, 63, 64, 65, 128};
    for (size_t i = 0; i < sizeof worlds / sizeof worlds[0]; i++) {
        rpi_rank_set set;
        REQUIRE_OK(rpi_rank_set_make(worlds[i], &set));
        CHECK_EQ(set.words, (worlds[i] + 63) / 64);
        rpi_rank_set_put(&set, worlds[i] - 1);
        CHECK_EQ(rpi_rank_set_next(&set, 0), worlds[i] - 1);
        CHECK_EQ(rpi_rank_set_next(&set, worlds[i]), -1);
        rpi_rank_set_free(&set);
    }
}

CASES({"members_are_found_in_order", members_are_found_in_order},
      {"worlds_fill_words", worlds_fill_words})
