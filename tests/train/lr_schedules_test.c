#include "train/schedules/lr_schedule.h"

#include "harness/check.h"

static void values_are_those_of_the_equations(void) {
    static const rpi_lr_options options = {.peak = 0.4,
                                           .minimum = 0.04,
                                           .gamma = 0.1,
                                           .warmup_steps = 4,
                                           .drop_every = 10,
                                           .total_steps = 44};
    static const struct {
        const char *name;
        int64_t step;
        double rate;
    } wanted[] = {
        {"constant", 0, 0.1},      {"constant", 3, 0.4},
        {"constant", 4, 0.4},      {"constant", 43, 0.4},
        {"warmup", 1, 0.2},        {"warmup", 4, 0.4},
        {"warmup", 40, 0.4},       {"step", 0, 0.1},
        {"step", 4, 0.4},          {"step", 13, 0.4},
        {"step", 14, 0.04},        {"step", 24, 0.004},
        {"cosine", 2, 0.3},        {"cosine", 4, 0.4},
        {"cosine", 24, 0.22},      {"cosine", 44, 0.04},
        {"cosine", 99, 0.04},      {"cosine", 14, 0.34727922061357856},
        {"linear", 0, 0.1},        {"linear", 4, 0.4},
        {"linear", 24, 0.22},      {"linear", 44, 0.04},
        {"linear", 99, 0.04},      {"1-sqrt", 3, 0.4},
        {"1-sqrt", 4, 0.4},        {"1-sqrt", 14, 0.22},
        {"1-sqrt", 44, 0.04},      {"wsd", 4, 0.4},
        {"wsd", 36, 0.4},          {"wsd", 38, 0.22},
        {"wsd", 44, 0.04},         {"wsd", 99, 0.04},
        {"inverse-sqrt", 3, 0.4},  {"inverse-sqrt", 4, 0.4},
        {"inverse-sqrt", 16, 0.2}, {"inverse-sqrt", 40, 0.4 / 3.1622776601683795},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        const rpi_lr_schedule *schedule = NULL;
        REQUIRE_OK(rpi_lr_schedule_find(wanted[i].name, &schedule));
        CHECK_OK(rpi_lr_check(schedule, &options));
        double rate = rpi_lr_at(schedule, &options, wanted[i].step);
        CHECK_MSG(fabs(rate - wanted[i].rate) < 1e-15, "%s at %lld is %.17g, not %.17g",
                  wanted[i].name, (long long)wanted[i].step, rate, wanted[i].rate);
    }
}

/* Held at the peak up to a step, down in so many. */
static void decay_starts_and_ends_where_it_is_told_to(void) {
    static const struct {
        const char *name;
        int64_t start, steps, step;
        double rate;
    } wanted[] = {
        {"linear", 20, 0, 19, 0.4},   {"linear", 20, 0, 20, 0.4},
        {"linear", 20, 0, 32, 0.22},  {"linear", 20, 10, 25, 0.22},
        {"linear", 20, 10, 30, 0.04}, {"linear", 20, 10, 40, 0.04},
        {"linear", 0, 20, 14, 0.22},  {"linear", 0, 20, 24, 0.04},
        {"cosine", 20, 10, 25, 0.22}, {"wsd", 0, 16, 28, 0.4},
        {"wsd", 0, 16, 32, 0.22},     {"wsd", 0, 16, 44, 0.04},
        {"wsd", 12, 0, 20, 0.22},     {"wsd", 12, 16, 16, 0.22},
        {"wsd", 12, 16, 28, 0.04},    {"1-sqrt", 4, 40, 14, 0.22},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        rpi_lr_options options = {.peak = 0.4,
                                  .minimum = 0.04,
                                  .warmup_steps = 4,
                                  .total_steps = 44,
                                  .decay_start = wanted[i].start,
                                  .decay_steps = wanted[i].steps};
        const rpi_lr_schedule *schedule = NULL;
        REQUIRE_OK(rpi_lr_schedule_find(wanted[i].name, &schedule));
        CHECK_OK(rpi_lr_check(schedule, &options));
        double rate = rpi_lr_at(schedule, &options, wanted[i].step);
        CHECK_MSG(fabs(rate - wanted[i].rate) < 1e-15,
                  "case %zu, %s at %lld is %.17g, not %.17g", i, wanted[i].name,
                  (long long)wanted[i].step, rate, wanted[i].rate);
    }
}

static void every_schedule_stays_within_its_peak(void) {
    rpi_lr_options options = {.peak = 1, .gamma = 0.5, .warmup_steps = 3, .drop_every = 5};
    const rpi_lr_schedule *schedule;
    for (int i = 0; (schedule = rpi_lr_schedule_at(i)) != NULL; i++) {
        for (options.total_steps = 1; options.total_steps < 40; options.total_steps++) {
            for (int64_t step = 0; step < options.total_steps; step++) {
                double rate = rpi_lr_at(schedule, &options, step);
                CHECK_MSG(rate >= 0 && rate <= 1, "%s: %g", schedule->name, rate);
            }
        }
    }
}

static void mistakes_are_named(void) {
    const rpi_lr_schedule *schedule = NULL;
    CHECK_FAILS(rpi_lr_schedule_find("cosin", &schedule), INVALID, "did you mean 'cosine'");
    rpi_lr_options options = {.peak = 0.1, .minimum = 0.2};
    REQUIRE_OK(rpi_lr_schedule_find("cosine", &schedule));
    CHECK_FAILS(rpi_lr_check(schedule, &options), INVALID, "--lr-min 0.2 is above --lr 0.1");
    REQUIRE_OK(rpi_lr_schedule_find("step", &schedule));
    CHECK_FAILS(rpi_lr_check(schedule, &options), INVALID, "--lr-drop-every");
    REQUIRE_OK(rpi_lr_schedule_find("warmup", &schedule));
    CHECK_FAILS(rpi_lr_check(schedule, &options), INVALID, "--lr-warmup-steps");
    options = (rpi_lr_options){.peak = 0.1, .warmup_steps = 5, .decay_steps = 3};
    CHECK_FAILS(rpi_lr_check(schedule, &options), INVALID, "warmup does not");
    REQUIRE_OK(rpi_lr_schedule_find("linear", &schedule));
    CHECK_OK(rpi_lr_check(schedule, &options));
    options.decay_start = 4;
    CHECK_FAILS(rpi_lr_check(schedule, &options), INVALID,
                "decay starts at step 4, before the end of the warm-up, 5");
    options.decay_steps = -1;
    CHECK_FAILS(rpi_lr_check(schedule, &options), INVALID, "at least 0");
}

CASES({"values are those of the equations", values_are_those_of_the_equations},
      {"decay starts and ends where it is told to", decay_starts_and_ends_where_it_is_told_to},
      {"every schedule stays within its peak", every_schedule_stays_within_its_peak},
      {"mistakes are named", mistakes_are_named})
