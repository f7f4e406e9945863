/* What error feedback held back goes out with an exact all-reduce, on all ranks alike, by every
 * algorithm that there is. */
#include "redpoll/redpoll.h"

#include "comm/thread_world.h"
#include "plan/plan.h"

#include <string.h>

enum { MOST_RANKS = 4, COUNT = 5000, SEGMENTS = 2 };

typedef struct result {
    const char *algorithm;
    rp_reduction reduce;
    int without; /* this rank holds nothing back; -1: all do */
    rp_status status[MOST_RANKS];
    float sum[MOST_RANKS][SEGMENTS][COUNT], held[MOST_RANKS][COUNT];
} result;

static float value_of(int rank, int segment, size_t i) {
    return (float)((int)(i * 7 + (size_t)segment) % 64 + rank);
}

static float held_by(int rank, size_t i) {
    return (float)((int)i % 16 + 1) / 4 + (float)rank;
}

static void reduce(rp_comm *comm, int rank, int world, void *context) {
    result *r = context;
    (void)world;
    for (size_t i = 0; i < COUNT; i++) {
        for (int s = 0; s < SEGMENTS; s++) r->sum[rank][s][i] = value_of(rank, s, i);
        r->held[rank][i] = rank == r->without ? 0 : held_by(rank, i);
    }
    rp_segment segments[SEGMENTS] = {
        {.data = r->sum[rank][0],
         .count = COUNT,
         .dtype = RP_F32,
         .residual = rank == r->without ? NULL : r->held[rank]},
        {.data = r->sum[rank][1], .count = COUNT, .dtype = RP_F32, .tensor = 1}};
    rp_collective_options options =
        RP_COLLECTIVE_OPTIONS(.algorithm = r->algorithm, .reduce = r->reduce);
    r->status[rank] = rp_all_reduce(comm, segments, SEGMENTS, &options);
}

/* Of contributions; what owners hold back is of the sum. */
static void check_sums(const result *r, int world) {
    double times = r->reduce == RP_AVG ? 1.0 / world : 1;
    for (int rank = 0; rank < world; rank++) {
        CHECK_OK(r->status[rank]);
        CHECK_MSG(memcmp(r->sum[rank], r->sum[0], sizeof r->sum[0]) == 0,
                  "%s of %d: rank %d differs", r->algorithm ? r->algorithm : "chosen", world,
                  rank);
    }
    for (size_t i = 0; i < COUNT; i += 97) {
        double values = 0, others = 0, held = 0;
        for (int rank = 0; rank < world; rank++) {
            values += value_of(rank, 0, i);
            others += value_of(rank, 1, i);
            held += rank == r->without ? 0 : held_by(rank, i);
            CHECK(r->held[rank][i] == 0);
        }
        CHECK_NEAR(r->sum[0][1][i], others * times, 1e-4);
        CHECK_MSG(r->sum[0][0][i] > values * times && r->sum[0][0][i] < (values + held) + 1e-4,
                  "%s of %d: %g of %g and %g held back", r->algorithm ? r->algorithm : "chosen",
                  world, (double)r->sum[0][0][i], values, held);
    }
}

static void run(const char *algorithm, int world, int without) {
    static result r;
    static const rp_reduction kinds[] = {RP_SUM, RP_AVG};
    for (int k = 0; k < 2; k++) {
        r = (result){.algorithm = algorithm, .reduce = kinds[k], .without = without};
        world_run(world, NULL, reduce, &r);
        check_sums(&r, world);
    }
}

static void every_algorithm(int without) {
    const rpi_algorithm *algorithm;
    for (int world = 2; world <= MOST_RANKS; world++) {
        run(NULL, world, without);
        for (int i = 0; (algorithm = rpi_algorithm_at(i)) != NULL; i++)
            if (algorithm->collective == RPI_ALL_REDUCE) run(algorithm->name, world, without);
    }
}

static void all_ranks_hold_something_back(void) {
    every_algorithm(-1);
}

static void one_rank_holds_nothing_back(void) {
    every_algorithm(1);
}

CASES({"all_ranks_hold_something_back", all_ranks_hold_something_back},
      {"one_rank_holds_nothing_back", one_rank_holds_nothing_back})
