#include "train/data/sampler.h"

#include "base/memory.h"
#include "base/rng.h"
#include "harness/check.h"

/* What all ranks see at a step, rank after rank. */
static int64_t deal_all(rpi_sampler *sampler, int64_t step, int world, uint32_t *out) {
    int64_t total = 0;
    for (int rank = 0; rank < world; rank++) {
        rpi_batch batch = rpi_sampler_deal(sampler, step, rank, world);
        memcpy(out + total, batch.indices, (size_t)batch.count * sizeof *out);
        total += batch.count;
        CHECK(batch.count <= (batch.global_count + world - 1) / world);
    }
    CHECK_EQ(total, rpi_sampler_deal(sampler, step, 0, 1).global_count);
    return total;
}

static void any_world_sees_the_same_order(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 0);
    for (int trial = 0; trial < 200; trial++) {
        int64_t count = 1 + rpi_rng_below(&rng, 300), batch = 1 + rpi_rng_below(&rng, 70);
        int world = 1 + (int)rpi_rng_below(&rng, 9);
        rpi_sampler sampler = {0};
        REQUIRE_OK(rpi_sampler_create(rpi_rng_u32(&rng), count, batch, &sampler));
        uint32_t one[80], many[80];
        int64_t steps = 2 * rpi_sampler_steps_per_epoch(&sampler);
        for (int64_t step = 0; step < steps; step++) {
            int64_t n = deal_all(&sampler, step, 1, one);
            CHECK_EQ(deal_all(&sampler, step, world, many), n);
            CHECK(memcmp(one, many, (size_t)n * sizeof *one) == 0);
        }
        rpi_sampler_destroy(&sampler);
    }
}

static void an_epoch_holds_every_image_once(void) {
    enum { COUNT = 103 };
    rpi_sampler sampler = {0};
    REQUIRE_OK(rpi_sampler_create(check_seed(), COUNT, 10, &sampler));
    CHECK_EQ(rpi_sampler_steps_per_epoch(&sampler), 11);
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        int seen[COUNT] = {0};
        for (int64_t step = 0; step < 11; step++) {
            uint32_t dealt[10];
            int64_t n = deal_all(&sampler, epoch * 11 + step, 4, dealt);
            CHECK_EQ(n, step < 10 ? 10 : 3);
            for (int64_t i = 0; i < n; i++) seen[dealt[i]]++;
        }
        for (int i = 0; i < COUNT; i++) CHECK_EQ(seen[i], 1);
    }
    rpi_sampler_destroy(&sampler);
}

static void epochs_and_seeds_differ_and_steps_can_be_asked_in_any_order(void) {
    uint32_t first[50], second[50], again[50];
    rpi_sampler sampler = {0};
    REQUIRE_OK(rpi_sampler_create(7, 50, 50, &sampler));
    deal_all(&sampler, 0, 1, first);
    deal_all(&sampler, 1, 1, second);
    deal_all(&sampler, 0, 1, again);
    CHECK(memcmp(first, second, sizeof first) != 0);
    CHECK(memcmp(first, again, sizeof first) == 0);
    rpi_sampler_destroy(&sampler);
    REQUIRE_OK(rpi_sampler_create(8, 50, 50, &sampler));
    deal_all(&sampler, 0, 1, again);
    CHECK(memcmp(first, again, sizeof first) != 0);
    rpi_sampler_destroy(&sampler);
}

/* Positions of one element over many epochs are uniform: chi-squared over 10 places, 9 degrees
 * of freedom, 27.9 is exceeded with probability 0.001 by chance; the seed is fixed. */
static void the_shuffle_is_uniform(void) {
    int places[10] = {0};
    rpi_sampler sampler = {0};
    REQUIRE_OK(rpi_sampler_create(1, 10, 10, &sampler));
    for (int64_t epoch = 0; epoch < 10000; epoch++) {
        rpi_batch batch = rpi_sampler_deal(&sampler, epoch, 0, 1);
        for (int i = 0; i < 10; i++) places[i] += batch.indices[i] == 3;
    }
    double chi = 0;
    for (int i = 0; i < 10; i++) chi += (places[i] - 1000.0) * (places[i] - 1000.0) / 1000.0;
    CHECK_MSG(chi < 27.9, "chi-squared is %g", chi);
    rpi_sampler_destroy(&sampler);
}

static void memory_that_runs_out_is_reported(void) {
    rpi_sampler sampler = {0};
    rpi_memory_fail_after(1);
    CHECK_FAILS(rpi_sampler_create(1, 10, 2, &sampler), NOMEM, "order");
    rpi_memory_fail_after(0);
    CHECK(sampler.order == NULL);
}

CASES({"any world sees the same order", any_world_sees_the_same_order},
      {"an epoch holds every image once", an_epoch_holds_every_image_once},
      {"epochs and seeds differ, steps come in any order",
       epochs_and_seeds_differ_and_steps_can_be_asked_in_any_order},
      {"the shuffle is uniform", the_shuffle_is_uniform},
      {"memory that runs out is reported", memory_that_runs_out_is_reported})
