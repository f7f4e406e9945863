/* Error feedback of reduce-scatter and all-gather: over any number of steps, what came out and
 * what ranks still hold back is what went in, whoever owned it in which step and by whichever
 * algorithm; and what is held back is less than one quantum of the codec. */
#include "comm/thread_world.h"

#include "base/rng.h"
#include "plan/plan.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_RANKS = 7, SEGMENTS = 3, COUNT = 3 * 1100, STEPS = 10 };

static const size_t begins[SEGMENTS + 1] = {0, 1024, 1024, COUNT};
static const int three_hosts[MOST_RANKS] = {0, 1, 1, 0, 0, 2, 1};

typedef struct job {
    const char *algorithm, *codec;
    rp_collective_options options;
    bool gathers;
} job;

static float inputs[MOST_RANKS][COUNT], outputs[MOST_RANKS][COUNT], held[MOST_RANKS][COUNT];
static double given[COUNT], come[COUNT]; /* by all ranks, in all steps */

static int owner_at(int step, int segment, int world) {
    return (segment + (step >= STEPS / 2 ? 1 : 0)) % world;
}

static void fill(int step, int rank, double scale) {
    rpi_rng rng = rpi_rng_make(check_seed() + (uint64_t)step, RPI_RNG_TEST, (uint64_t)rank);
    for (size_t i = 0; i < COUNT; i++) inputs[rank][i] = (float)scale * rpi_rng_normal(&rng);
}

static void list(int step, int rank, int world, const rp_codec *codec,
                 rp_owned_segment *segments) {
    for (int s = 0; s < SEGMENTS; s++) {
        size_t at = begins[s];
        bool in_place = (s + step) % 3 == 0;
        segments[s] = (rp_owned_segment){.segment = {.data = &inputs[rank][at],
                                                     .count = begins[s + 1] - at,
                                                     .dtype = RP_F32,
                                                     .codec = *codec,
                                                     .residual = &held[rank][at],
                                                     .tensor = (uint32_t)s},
                                         .owner = owner_at(step, s, world),
                                         .own = in_place ? NULL : &outputs[rank][at]};
    }
}

/* After a reduce-scatter: each owner's sum; rank 0 does it for all. */
static void count_reduced(int step, int world, const rp_owned_segment *segments) {
    for (int s = 0; s < SEGMENTS; s++) {
        int owner = owner_at(step, s, world);
        const float *sums = segments[s].own ? outputs[owner] : inputs[owner];
        for (size_t i = begins[s]; i < begins[s + 1]; i++) come[i] += (double)sums[i];
    }
}

static void step_reduced(rp_comm *comm, int rank, int world, const job *j, int step,
                         const rp_codec *codec) {
    rp_owned_segment segments[SEGMENTS];
    rp_collective_options options = j->options;
    options.step = (uint64_t)step;
    options.factor = 0.5;
    double scale = options.reduce == RP_AVG          ? 1.0 / world
                   : options.reduce == RP_PREMUL_SUM ? options.factor
                                                     : 1;
    fill(step, rank, 1);
    list(step, rank, world, codec, segments);
    world_meet();
    for (int r = 0; r < world && rank == 0; r++)
        for (size_t i = 0; i < COUNT; i++) given[i] += scale * (double)inputs[r][i];
    world_meet();
    CHECK_OK(rp_reduce_scatter_segments(comm, segments, SEGMENTS, &options));
    world_meet();
    if (rank == 0) count_reduced(step, world, segments);
    world_meet();
}

static void step_gathered(rp_comm *comm, int rank, int world, const job *j, int step,
                          const rp_codec *codec) {
    rp_owned_segment segments[SEGMENTS];
    rp_collective_options options = j->options;
    options.step = (uint64_t)step;
    fill(step, rank, 1);
    list(step, rank, world, codec, segments);
    memcpy(outputs[rank], inputs[rank], sizeof inputs[rank]);
    world_meet();
    for (int s = 0; s < SEGMENTS && rank == 0; s++)
        for (size_t i = begins[s]; i < begins[s + 1]; i++)
            given[i] += (double)inputs[owner_at(step, s, world)][i];
    world_meet();
    CHECK_OK(rp_all_gather_segments(comm, segments, SEGMENTS, &options));
    world_meet();
    CHECK_MSG(memcmp(inputs[rank], inputs[0], sizeof inputs[0]) == 0, "rank %d differs", rank);
    for (size_t i = 0; i < COUNT && rank == 0; i++) come[i] += (double)inputs[0][i];
    world_meet();
}

/* The largest difference between what went in, and what came out and is held back. */
static double lost(int world, const job *j, double *out_held) {
    double most = 0, scale = j->options.reduce == RP_AVG ? 1.0 / world : 1;
    *out_held = 0;
    for (size_t i = 0; i < COUNT; i++) {
        double back = 0;
        for (int rank = 0; rank < world; rank++) {
            back += scale * (double)held[rank][i];
            *out_held = fmax(*out_held, fabs((double)held[rank][i]));
        }
        most = fmax(most, fabs(given[i] - come[i] - back));
    }
    return most;
}

/* Of a quantised value between -a and a: half a step when rounding to nearest. */
static double quantum_of(const rp_codec *codec, double held_before) {
    enum { LARGEST = 6 }; /* of so few normal numbers */
    return 2 * (LARGEST + held_before) / ((1 << codec->bits) - 1);
}

static void check_step(const job *j, int world, int step, const rp_codec *codec,
                       double *in_out_held) {
    double now, differ = lost(world, j, &now);
    CHECK_MSG(differ < 2e-4, "%s of %d by %s with %s, step %d: %g is lost",
              j->gathers ? "all-gather" : "reduce-scatter", world, j->algorithm, j->codec, step,
              differ);
    if (j->codec[0] == 'q' && codec->rounding == RP_NEAREST && j->options.reduce == RP_SUM)
        CHECK_MSG(now <= (strcmp(j->algorithm, "ring") == 0 ? world : 1) *
                             quantum_of(codec, *in_out_held),
                  "%s of %d by %s with %s, step %d: %g is held back",
                  j->gathers ? "all-gather" : "reduce-scatter", world, j->algorithm, j->codec,
                  step, now);
    *in_out_held = now;
}

/* Who owns a sum has encoded nothing of it, and so holds nothing back. */
static void check_owned(int rank, int world, int step) {
    for (int s = 0; s < SEGMENTS; s++)
        for (size_t i = begins[s]; i < begins[s + 1] && owner_at(step, s, world) == rank; i++)
            CHECK_MSG(held[rank][i] == 0, "step %d: rank %d holds %g of its own back", step,
                      rank, (double)held[rank][i]);
}

/* Lossy steps, between which owners change, and an exact one behind them. */
static void take_steps(rp_comm *comm, int rank, int world, void *context) {
    const job *j = context;
    rp_codec codec, exact = {0};
    double held_back = 0;
    CHECK_OK(rp_codec_parse(j->codec, &codec));
    memset(held[rank], 0, sizeof held[rank]);
    for (int step = 0; step <= STEPS; step++) {
        const rp_codec *now = step < STEPS ? &codec : &exact;
        if (j->gathers)
            step_gathered(comm, rank, world, j, step, now);
        else
            step_reduced(comm, rank, world, j, step, now);
        if (rank == 0 && step < STEPS) check_step(j, world, step, &codec, &held_back);
        if (!j->gathers || step == STEPS) check_owned(rank, world, step);
        world_meet();
    }
    for (size_t i = 0; i < COUNT && !j->gathers; i++) CHECK(held[rank][i] == 0);
    double none;
    if (rank == 0) CHECK(lost(world, j, &none) < 2e-4);
}

static const char *const codecs[] = {"q4",   "q2:bucket=100", "q8:rounding=stochastic",
                                     "topk", "sign",          "v4:bucket=1000",
                                     "bf16", "fp32"};
enum { CODECS = sizeof codecs / sizeof codecs[0] };

static void run(const rpi_algorithm *algorithm, int world, const char *codec,
                rp_reduction reduction) {
    job j = {.algorithm = algorithm->name,
             .codec = codec,
             .options =
                 RP_COLLECTIVE_OPTIONS(.algorithm = algorithm->name, .reduce = reduction),
             .gathers = algorithm->collective == RPI_ALL_GATHER};
    memset(given, 0, sizeof given);
    memset(come, 0, sizeof come);
    world_run(world, NULL, take_steps, &j);
}

static void every_algorithm(rpi_collective collective, rp_reduction reduction) {
    static const int worlds[] = {1, 2, 3, MOST_RANKS};
    for (int a = 0; rpi_algorithm_at(a); a++) {
        const rpi_algorithm *algorithm = rpi_algorithm_at(a);
        if (algorithm->collective != collective) continue;
        for (int hosts = 0; hosts <= algorithm->knows_hosts; hosts++) {
            world_hosts(hosts ? three_hosts : NULL);
            for (int w = 0; w < 4; w++)
                for (int c = 0; c < CODECS; c++)
                    if (rpi_algorithm_fits(algorithm, worlds[w]) &&
                        (reduction == RP_SUM || c < 2))
                        run(algorithm, worlds[w], codecs[c], reduction);
        }
    }
    world_hosts(NULL);
}

static void sums_and_residuals_are_what_went_in(void) {
    every_algorithm(RPI_REDUCE_SCATTER, RP_SUM);
}

static void so_are_means_and_scaled_sums(void) {
    every_algorithm(RPI_REDUCE_SCATTER, RP_AVG);
    every_algorithm(RPI_REDUCE_SCATTER, RP_PREMUL_SUM);
}

static void what_is_gathered_and_residuals_are_what_went_in(void) {
    every_algorithm(RPI_ALL_GATHER, RP_SUM);
}

CASES({"sums and residuals are what went in", sums_and_residuals_are_what_went_in},
      {"so are means and scaled sums", so_are_means_and_scaled_sums},
      {"what is gathered and residuals are what went in",
       what_is_gathered_and_residuals_are_what_went_in})
