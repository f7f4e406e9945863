#include "plan/choose.h"

#include "harness/check.h"
#include "plan/algorithms.h"

enum { VECTOR = 25557032 * 4 };

static void the_choice(void) {
    const rpi_cost_model model = {
        .bytes_per_s = 125e6, .latency_s = 50e-6, .frame_s = 10e-6, .frame_bytes = 64};
    const struct {
        rpi_collective collective;
        int world;
        bool lossy;
        size_t bytes;
        const rpi_algorithm *wanted;
    } cases[] = {
        {RPI_ALL_REDUCE, 1, true, VECTOR, &rpi_algorithm_sra},
        {RPI_ALL_REDUCE, 8, true, VECTOR, &rpi_algorithm_sra},
        {RPI_ALL_REDUCE, 8, true, 4, &rpi_algorithm_sra},
        {RPI_ALL_REDUCE, 8, false, 4, &rpi_algorithm_oneshot},
        {RPI_ALL_REDUCE, 8, false, VECTOR, &rpi_algorithm_sra},
        {RPI_REDUCE_SCATTER, 8, true, VECTOR, &rpi_algorithm_direct_scatter},
        {RPI_BROADCAST, 8, false, 4, &rpi_algorithm_tree_broadcast},
        {RPI_BROADCAST, 16, false, VECTOR, &rpi_algorithm_scatter_broadcast},
        {RPI_BARRIER, 8, false, 0, &rpi_algorithm_dissemination},
        {RPI_SENDRECV, 2, false, 100, &rpi_algorithm_rendezvous},
        {RPI_REDUCE, 8, false, 4, &rpi_algorithm_direct_reduce},
        {RPI_REDUCE, 2, false, VECTOR, &rpi_algorithm_direct_reduce},
        {RPI_REDUCE, 3, false, VECTOR, &rpi_algorithm_scatter_reduce},
        {RPI_REDUCE, 8, true, VECTOR, &rpi_algorithm_direct_reduce},
        {RPI_GATHER, 8, false, VECTOR, &rpi_algorithm_root_gather},
        {RPI_SCATTER, 8, false, 4, &rpi_algorithm_root_scatter},
        {RPI_ALL_TO_ALL, 8, false, VECTOR, &rpi_algorithm_pairwise},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const rpi_algorithm *chosen = NULL;
        REQUIRE_OK(rpi_algorithm_choose(cases[i].collective, cases[i].world, cases[i].bytes,
                                        cases[i].bytes, cases[i].lossy, &model, &chosen));
        CHECK_MSG(chosen == cases[i].wanted, "%s of %zu bytes, world %d: %s",
                  rpi_collective_name(cases[i].collective), cases[i].bytes, cases[i].world,
                  chosen->name);
    }
    const rpi_algorithm *chosen = NULL;
    CHECK_FAILS(rpi_algorithm_choose(RPI_SENDRECV, 3, 1, 1, false, &model, &chosen),
                UNSUPPORTED, "world of 3");
    CHECK(!chosen);
}

static rpi_cost price(const rpi_algorithm *algorithm, int world, size_t bytes,
                      const rpi_cost_model *model) {
    rpi_cost cost = {0};
    CHECK_OK(rpi_plan_cost(algorithm, world, bytes, bytes, model, &cost));
    return cost;
}

/* For exact data no other algorithm of the collective is clearly cheaper than the one chosen.
 */
static void the_choice_is_the_cheapest(void) {
    const rpi_cost_model model = {1e9, 1e-5, 2e9, 4e9, 64, 1e-6, 0, 0};
    for (int collective = 0; collective < RPI_COLLECTIVES; collective++) {
        int world = collective == RPI_SENDRECV ? 2 : 7;
        for (size_t bytes = 4; bytes < 1000000000; bytes *= 50) {
            const rpi_algorithm *chosen = NULL, *other;
            REQUIRE_OK(rpi_algorithm_choose((rpi_collective)collective, world, bytes, bytes,
                                            false, &model, &chosen));
            double least_s = price(chosen, world, bytes, &model).time_s;
            for (int i = 0; (other = rpi_algorithm_at(i)) != NULL; i++)
                if ((int)other->collective == collective &&
                    (other->rank_order || !chosen->rank_order))
                    CHECK(price(other, world, bytes, &model).time_s >= 0.95 * least_s);
        }
    }
}

static void the_default(void) {
    const struct {
        rpi_collective collective;
        int world;
        bool lossy;
        size_t bytes;
        const rpi_algorithm *wanted;
    } cases[] = {
        {RPI_ALL_REDUCE, 4, true, VECTOR, &rpi_algorithm_sra},
        {RPI_ALL_REDUCE, 4, false, VECTOR, &rpi_algorithm_sra},
        {RPI_ALL_REDUCE, 33, false, VECTOR, &rpi_algorithm_ring},
        {RPI_ALL_REDUCE, 33, true, VECTOR, &rpi_algorithm_sra},
        {RPI_BROADCAST, 8, false, 64, &rpi_algorithm_tree_broadcast},
        {RPI_BROADCAST, 8, false, VECTOR, &rpi_algorithm_scatter_broadcast},
        {RPI_BARRIER, 5, false, 0, &rpi_algorithm_dissemination},
        {RPI_REDUCE, 4, false, 1000, &rpi_algorithm_direct_reduce},
        {RPI_REDUCE, 4, false, VECTOR, &rpi_algorithm_scatter_reduce},
        {RPI_REDUCE, 33, false, 64, &rpi_algorithm_direct_reduce},
        {RPI_REDUCE, 33, false, VECTOR, &rpi_algorithm_scatter_reduce},
        {RPI_ALL_TO_ALL, 33, false, VECTOR, &rpi_algorithm_pairwise},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const rpi_algorithm *chosen = NULL;
        REQUIRE_OK(rpi_algorithm_default(cases[i].collective, cases[i].world, cases[i].lossy,
                                         cases[i].bytes, &chosen));
        CHECK_MSG(chosen == cases[i].wanted, "%s of %zu bytes, world %d: %s",
                  rpi_collective_name(cases[i].collective), cases[i].bytes, cases[i].world,
                  chosen->name);
    }
}

/* What ranks know different sizes of may not be chosen by size. */
static void the_choice_for_blocks_needs_no_size(void) {
    const rpi_collective of_blocks[] = {RPI_GATHER, RPI_SCATTER, RPI_ALL_TO_ALL};
    for (int i = 0; i < 3; i++) {
        for (int world = 1; world <= 33; world++) {
            const rpi_algorithm *none = NULL, *much = NULL;
            REQUIRE_OK(rpi_algorithm_default(of_blocks[i], world, false, 0, &none));
            REQUIRE_OK(rpi_algorithm_default(of_blocks[i], world, false, VECTOR, &much));
            CHECK(none == much);
        }
    }
}

CASES({"the default", the_default}, {"the choice", the_choice},
      {"the choice for blocks needs no size", the_choice_for_blocks_needs_no_size},
      {"the choice is the cheapest", the_choice_is_the_cheapest})
