#include "train/schedules/lr_schedule.h"

static double rate(const rpi_lr_options *options, int64_t step, int64_t steps) {
    (void)step, (void)steps;
    return options->peak;
}

const rpi_lr_schedule rpi_lr_constant = {"constant", "the same rate throughout", NULL, rate, 0};
