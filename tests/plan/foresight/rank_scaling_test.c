/* Steps of ranks that exchange, by hand. */
#include "plan/foresight/rank_scaling.h"

#include "harness/check.h"

#include <math.h>

/* ---- the table: add a row. A step of 1 s, whose last 0.6 s may hide an exchange ---- */

static void steps(void) {
    static const struct {
        double time_s, last_s, window_s, core_s, every, step_s;
    } rows[] = {
        {0, 0, .6, 0, 1, 1},       {.5, 0, .6, 0, 1, 1}, /* hidden */
        {.5, .1, .6, 0, 1, 1.1},                         /* but for the last bucket */
        {2, .1, .6, 0, 1, 2.4},                          /* longer than what hides it */
        {2, 1, .6, 0, 1, 2.4},     /* parameters come back when all is pushed */
        {1, 1, .6, 0, 1, 2},       /* and nothing else is left */
        {2, 0, 0, 0, 20, 1.1},     /* local steps */
        {2, 0, 1.5, 0, 20, 1.025}, /* under which it travels */
        {.5, 0, .6, .2, 1, 1.2},   /* the cores that compute send it */
        {2, 0, 0, .2, 20, 1.11},   /* now and then */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rpi_scaling_work w = {.compute_s = 1, .backward_s = .6};
        rpi_scaling_exchange x = {.time_s = rows[i].time_s,
                                  .last_s = rows[i].last_s,
                                  .window_s = rows[i].window_s,
                                  .core_s = rows[i].core_s,
                                  .every = rows[i].every,
                                  .waits_for = 8,
                                  .workers = 8};
        double got = rpi_scaling_step_s(&w, &x);
        CHECK_MSG(fabs(got - rows[i].step_s) < 1e-12, "row %d: %g", (int)i, got);
    }
}

/* Expectations of the largest of n normals: 0.5642, 1.1630, 1.4236, 1.7660, 2.0697, 2.3437,
 * 2.5911 of 2, 5, 8, 16, 32, 64, 128 (tables of order statistics). */
static void the_slowest(void) {
    static const double known[][2] = {{1, 0},       {2, .5642},   {5, 1.1630},  {8, 1.4236},
                                      {16, 1.7660}, {32, 2.0697}, {64, 2.3437}, {128, 2.5911}};
    double last = -1;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        double got = rpi_scaling_slowest(known[i][0]);
        CHECK_MSG(fabs(got - known[i][1]) < .03, "of %g: %g", known[i][0], got);
        CHECK(got > last);
        last = got;
    }
}

static void who_waits_for_fewer_waits_less(void) {
    rpi_scaling_work w = {.compute_s = 1, .jitter_s = .1};
    rpi_scaling_exchange all = {.every = 1, .waits_for = 128},
                         one = {.every = 1, .waits_for = 2};
    rpi_scaling_exchange seldom = {.every = 25, .waits_for = 128};
    CHECK_NEAR(rpi_scaling_step_s(&w, &all), 1.26, .01);
    CHECK_NEAR(rpi_scaling_step_s(&w, &one), 1.0564, .003);
    CHECK_NEAR(rpi_scaling_step_s(&w, &seldom) - 1, (rpi_scaling_step_s(&w, &all) - 1) / 5,
               1e-9);
}

CASES({"steps", steps}, {"the slowest", the_slowest},
      {"who waits for fewer waits less", who_waits_for_fewer_waits_less})
