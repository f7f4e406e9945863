#include "plan/choose.h"

#include "harness/check.h"
#include "plan/algorithms.h"

enum { VECTOR = 25557032 * 4, MOST = 64 };

/* Ranks on hosts of `each`, one behind the other; 0: NULL, each on its own. */
static const int *hosts_of(int each) {
    static int host_of[1024];
    for (int rank = 0; each && rank < 1024; rank++) host_of[rank] = rank / each;
    return each ? host_of : NULL;
}

static const rpi_algorithm *choice(rpi_collective collective, int world, int each, bool lossy,
                                   size_t bytes) {
    rpi_plan_request request = {.world = world, .host_of = hosts_of(each)};
    const rpi_algorithm *chosen = NULL;
    CHECK_OK(
        rpi_algorithm_choose(collective, &request, lossy, bytes, &rpi_nominal_links, &chosen));
    return chosen ? chosen : &rpi_algorithm_neighbours; /* which none chooses */
}

static void the_choice(void) {
    const struct {
        rpi_collective collective;
        int world, each;
        bool lossy;
        size_t bytes;
        const rpi_algorithm *wanted;
    } cases[] = {
        {RPI_ALL_REDUCE, 1, 0, true, VECTOR, &rpi_algorithm_sra},
        {RPI_ALL_REDUCE, 2, 2, false, VECTOR, &rpi_algorithm_sra},
        {RPI_ALL_REDUCE, 2, 2, false, 4096, &rpi_algorithm_oneshot},
        {RPI_ALL_REDUCE, 4, 0, false, VECTOR, &rpi_algorithm_sra},
        {RPI_ALL_REDUCE, 8, 0, true, VECTOR, &rpi_algorithm_sra},
        {RPI_ALL_REDUCE, 8, 0, true, 4, &rpi_algorithm_sra},
        {RPI_ALL_REDUCE, 8, 8, true, VECTOR, &rpi_algorithm_sra},
        {RPI_ALL_REDUCE, 8, 0, false, 4, &rpi_algorithm_oneshot},
        {RPI_ALL_REDUCE, 33, 0, false, VECTOR, &rpi_algorithm_ring},
        {RPI_ALL_REDUCE, 33, 0, true, VECTOR, &rpi_algorithm_sra},
        {RPI_ALL_REDUCE, 64, 0, false, 4096, &rpi_algorithm_doubling},
        {RPI_ALL_REDUCE, 64, 64, false, 4096, &rpi_algorithm_doubling},
        {RPI_ALL_REDUCE, 4, 2, false, VECTOR, &rpi_algorithm_two_level},
        {RPI_ALL_REDUCE, 4, 2, true, VECTOR, &rpi_algorithm_two_level},
        {RPI_ALL_REDUCE, 6, 2, false, VECTOR, &rpi_algorithm_two_level},
        {RPI_ALL_REDUCE, 64, 8, true, VECTOR, &rpi_algorithm_two_level},
        {RPI_ALL_REDUCE, 64, 8, false, VECTOR, &rpi_algorithm_two_level},
        {RPI_REDUCE_SCATTER, 8, 0, true, VECTOR, &rpi_algorithm_direct_scatter},
        {RPI_REDUCE_SCATTER, 33, 0, false, 4096, &rpi_algorithm_direct_scatter},
        {RPI_REDUCE_SCATTER, 33, 0, false, VECTOR, &rpi_algorithm_ring_scatter},
        {RPI_REDUCE_SCATTER, 8, 8, false, VECTOR, &rpi_algorithm_direct_scatter},
        {RPI_REDUCE_SCATTER, 8, 2, true, VECTOR, &rpi_algorithm_two_level_scatter},
        {RPI_REDUCE_SCATTER, 64, 8, false, VECTOR, &rpi_algorithm_two_level_scatter},
        {RPI_ALL_GATHER, 8, 0, false, VECTOR, &rpi_algorithm_direct_gather},
        {RPI_ALL_GATHER, 33, 0, false, VECTOR, &rpi_algorithm_ring_gather},
        {RPI_ALL_GATHER, 8, 2, true, VECTOR, &rpi_algorithm_two_level_gather},
        {RPI_ALL_GATHER, 64, 8, false, VECTOR, &rpi_algorithm_two_level_gather},
        {RPI_BROADCAST, 8, 0, false, 64, &rpi_algorithm_tree_broadcast},
        {RPI_BROADCAST, 8, 0, false, VECTOR, &rpi_algorithm_scatter_broadcast},
        {RPI_BROADCAST, 16, 0, false, VECTOR, &rpi_algorithm_scatter_broadcast},
        {RPI_BROADCAST, 4000, 0, false, VECTOR, &rpi_algorithm_scatter_broadcast},
        {RPI_BROADCAST, 8, 2, false, VECTOR, &rpi_algorithm_two_level_broadcast},
        {RPI_BROADCAST, 64, 8, false, VECTOR, &rpi_algorithm_two_level_broadcast},
        {RPI_BARRIER, 5, 0, false, 0, &rpi_algorithm_dissemination},
        {RPI_SENDRECV, 2, 0, false, 100, &rpi_algorithm_rendezvous},
        {RPI_REDUCE, 4, 0, false, 1000, &rpi_algorithm_direct_reduce},
        {RPI_REDUCE, 2, 0, false, VECTOR, &rpi_algorithm_direct_reduce},
        {RPI_REDUCE, 4, 0, false, VECTOR, &rpi_algorithm_scatter_reduce},
        {RPI_REDUCE, 33, 0, false, 64, &rpi_algorithm_direct_reduce},
        {RPI_REDUCE, 33, 0, false, VECTOR, &rpi_algorithm_scatter_reduce},
        {RPI_REDUCE, 8, 0, true, VECTOR, &rpi_algorithm_direct_reduce},
        {RPI_GATHER, 8, 0, false, VECTOR, &rpi_algorithm_root_gather},
        {RPI_SCATTER, 8, 0, false, 4, &rpi_algorithm_root_scatter},
        {RPI_ALL_TO_ALL, 33, 4, false, VECTOR, &rpi_algorithm_pairwise},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const rpi_algorithm *chosen = choice(cases[i].collective, cases[i].world, cases[i].each,
                                             cases[i].lossy, cases[i].bytes);
        CHECK_MSG(chosen == cases[i].wanted, "%s of %zu bytes, world %d on hosts of %d%s: %s",
                  rpi_collective_name(cases[i].collective), cases[i].bytes, cases[i].world,
                  cases[i].each, cases[i].lossy ? ", lossy" : "", chosen->name);
    }
    rpi_plan_request three = {.world = 3};
    const rpi_algorithm *chosen = NULL;
    CHECK_FAILS(
        rpi_algorithm_choose(RPI_SENDRECV, &three, false, 1, &rpi_nominal_links, &chosen),
        UNSUPPORTED, "world of 3");
    CHECK(!chosen);
}

/* Ranks that share cores: everybody's wait is a turn of all others. */
static void crowds_wait_seldom(void) {
    rpi_cost_model shared = rpi_nominal_links;
    const int *host_of = hosts_of(64);
    const struct {
        int world, cores;
        size_t bytes;
        const rpi_algorithm *wanted, *barrier;
    } cases[] = {
        {64, 0, 4096, &rpi_algorithm_doubling, &rpi_algorithm_dissemination},
        {64, 64, 4096, &rpi_algorithm_doubling, &rpi_algorithm_dissemination},
        {64, 2, 4096, &rpi_algorithm_star, &rpi_algorithm_star_barrier},
        {64, 2, 4, &rpi_algorithm_star, &rpi_algorithm_star_barrier},
        {32, 2, 4096, &rpi_algorithm_star, &rpi_algorithm_star_barrier},
        {16, 2, 4096, &rpi_algorithm_oneshot, &rpi_algorithm_dissemination},
        {4, 2, 4, &rpi_algorithm_oneshot, &rpi_algorithm_dissemination},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rpi_plan_request request = {.world = cases[i].world, .host_of = host_of};
        const rpi_algorithm *chosen = &rpi_algorithm_neighbours;
        shared.cores = cases[i].cores;
        CHECK_OK(rpi_algorithm_choose(RPI_ALL_REDUCE, &request, false, cases[i].bytes, &shared,
                                      &chosen));
        CHECK_MSG(chosen == cases[i].wanted, "%zu bytes, %d ranks on %d cores: %s",
                  cases[i].bytes, cases[i].world, cases[i].cores, chosen->name);
        CHECK_OK(rpi_algorithm_choose(RPI_BARRIER, &request, false, 0, &shared, &chosen));
        CHECK_MSG(chosen == cases[i].barrier, "barrier of %d ranks on %d cores: %s",
                  cases[i].world, cases[i].cores, chosen->name);
    }
}

/* Up to 16 ranks of one host, or of a host each, exact sums have the bits of the serial one. */
static void small_worlds_add_in_rank_order(void) {
    for (int world = 1; world <= 16; world++)
        for (int flat = 0; flat < 2; flat++)
            for (size_t bytes = 1; bytes < VECTOR; bytes *= 8) {
                CHECK(
                    choice(RPI_ALL_REDUCE, world, flat ? 0 : world, false, bytes)->rank_order);
                CHECK(choice(RPI_REDUCE, world, flat ? 0 : world, false, bytes)->rank_order);
            }
}

static void the_table_is_the_choice(void) {
    const struct {
        int world, each;
    } worlds[] = {{1, 0}, {2, 0}, {4, 2}, {7, 3}, {64, 8}, {100, 0}};
    for (size_t w = 0; w < sizeof worlds / sizeof worlds[0]; w++) {
        static rpi_choices choices;
        rpi_world_shape shape;
        rpi_plan_request request = {.world = worlds[w].world,
                                    .host_of = hosts_of(worlds[w].each)};
        REQUIRE_OK(rpi_world_shape_make(&request, &shape));
        rpi_choices_make(&request, &shape, &rpi_nominal_links, &choices);
        for (int collective = 0; collective < RPI_COLLECTIVES; collective++)
            for (size_t bytes = 0; bytes < VECTOR; bytes = 5 * bytes + 1) {
                const rpi_algorithm *found = NULL;
                int world = collective == RPI_SENDRECV ? 2 : worlds[w].world;
                int each = collective == RPI_SENDRECV ? 0 : worlds[w].each;
                REQUIRE_OK(rpi_choices_find(&choices, (rpi_collective)collective, world, false,
                                            bytes, &found));
                CHECK(found == choice((rpi_collective)collective, world, each, false, bytes));
            }
    }
}

/* What ranks know different sizes of may not be chosen by size. */
static void the_choice_for_blocks_needs_no_size(void) {
    const rpi_collective of_blocks[] = {RPI_GATHER, RPI_SCATTER, RPI_ALL_TO_ALL};
    for (int i = 0; i < 3; i++)
        for (int world = 1; world <= 33; world++)
            CHECK(choice(of_blocks[i], world, 4, false, 0) ==
                  choice(of_blocks[i], world, 4, false, VECTOR));
}

/* ---- outlines against the schedules themselves ---- */

typedef struct counts {
    double frames, frames_between, host_bytes;
} counts;

static int host_at(const rpi_plan_request *request, int rank) {
    return request->host_of ? request->host_of[rank] : rank;
}

/* Frames that the busiest rank handles, and bytes that leave the busiest host, or come to it,
 * in vectors (all parts are of one size). */
static counts count(const rpi_algorithm *algorithm, const rpi_plan_request *request) {
    double in[MOST] = {0}, out[MOST] = {0};
    counts most = {0};
    for (int rank = 0; rank < request->world; rank++) {
        rpi_plan_request own = *request;
        rpi_schedule schedule;
        double frames = 0, between = 0;
        own.rank = rank;
        CHECK_OK(rpi_schedule_build(algorithm, &own, &schedule));
        for (int i = 0; i < schedule.count; i++) {
            const rpi_step *step = &schedule.steps[i];
            if (step->peer < 0) continue;
            frames++;
            int here = host_at(request, rank), there = host_at(request, step->peer);
            between += here != there;
            bool token = step->from == RPI_SLOT_RTR;
            if (step->kind != RPI_STEP_SEND || token || here == there) continue;
            out[here] += 1.0 / schedule.parts;
            in[there] += 1.0 / schedule.parts;
        }
        rpi_schedule_destroy(&schedule);
        most.frames = fmax(most.frames, frames);
        most.frames_between = fmax(most.frames_between, between);
    }
    for (int host = 0; host < MOST; host++)
        most.host_bytes = fmax(most.host_bytes, fmax(in[host], out[host]));
    return most;
}

/* Latencies one after the other, of frames between hosts and inside, in a simulation in which
 * nothing else takes time. */
static double latencies(const rpi_algorithm *algorithm, const rpi_plan_request *request,
                        double between, double inside) {
    rpi_cost_model model = {
        .latency_s = between, .inside_latency_s = inside, .chunk_bytes = SIZE_MAX};
    rpi_cost cost = {0};
    CHECK_OK(rpi_plan_cost(algorithm, request, 100000, 100000, &model, &cost));
    return cost.time_s;
}

static void check_latencies(const rpi_algorithm *algorithm, const rpi_plan_request *request,
                            const rpi_outline *outline, int each) {
    double both = latencies(algorithm, request, 1, 1);
    double between = latencies(algorithm, request, 1, 0);
    double rounds = outline->rounds_between + outline->rounds_inside;
    CHECK_MSG(rounds >= both - 1e-9 && rounds <= both + 1 + 1e-9 &&
                  outline->rounds_between > between - 1 &&
                  outline->rounds_between <= between + 2,
              "%s %s, %d ranks on hosts of %d: %g + %g latencies, not %g, %g of them between",
              rpi_collective_name(algorithm->collective), algorithm->name, request->world, each,
              outline->rounds_between, outline->rounds_inside, both, between);
}

static void check_outline(const rpi_algorithm *algorithm, int world, int each) {
    rpi_plan_request request = {.world = world, .host_of = hosts_of(each)};
    rpi_world_shape shape;
    REQUIRE_OK(rpi_world_shape_make(&request, &shape));
    rpi_outline outline = algorithm->outline(&shape);
    counts real = count(algorithm, &request);
    double frames = outline.frames_between + outline.frames_inside;
    CHECK_MSG(outline.host_bytes >= 0.99 * real.host_bytes &&
                  outline.host_bytes <= 1.35 * real.host_bytes + 1e-9,
              "%s %s, %d ranks on hosts of %d: %g vectors, not %g",
              rpi_collective_name(algorithm->collective), algorithm->name, world, each,
              outline.host_bytes, real.host_bytes);
    CHECK_MSG(frames >= real.frames && frames <= real.frames + 1 &&
                  outline.frames_between >= real.frames_between,
              "%s %s, %d ranks on hosts of %d: %g + %g frames, not %g, %g of them between",
              rpi_collective_name(algorithm->collective), algorithm->name, world, each,
              outline.frames_between, outline.frames_inside, real.frames, real.frames_between);
    if (world <= 20)
        check_latencies(algorithm, &request, &outline, each); /* else it takes long */
}

static void outlines_are_what_schedules_do(void) {
    const rpi_algorithm *algorithm;
    for (int i = 0; (algorithm = rpi_algorithm_at(i)) != NULL; i++) {
        if (!algorithm->outline) continue;
        for (int world = 2; world <= 33; world++) check_outline(algorithm, world, 0);
        for (int each = 2; each <= 8; each *= 2)
            for (int world = each; world <= MOST; world *= 2)
                check_outline(algorithm, world, each);
    }
}

CASES({"the choice", the_choice},
      {"small worlds add in rank order", small_worlds_add_in_rank_order},
      {"the table is the choice", the_table_is_the_choice},
      {"the choice for blocks needs no size", the_choice_for_blocks_needs_no_size},
      {"crowds wait seldom", crowds_wait_seldom},
      {"outlines are what schedules do", outlines_are_what_schedules_do})
