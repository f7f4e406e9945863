#include "train/schedules/lr_schedule.h"

static double rate(const rpi_lr_options *options, int64_t step, int64_t steps) {
    double share = (double)step / (double)steps;
    return options->peak + share * (options->minimum - options->peak);
}

const rpi_lr_schedule rpi_lr_linear = {"linear", "a straight line down to --lr-min", NULL, rate,
                                       1};
