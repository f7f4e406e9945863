#include "train/schedules/lr_schedule.h"

#include <math.h>

/* Loshchilov, Hutter, "SGDR", 2017, eq. 5, one period: from peak at step 0 to the minimum at
 * step == steps, which is one past the last. */
static double rate(const rpi_lr_options *options, int64_t step, int64_t steps) {
    double share = (double)step / (double)steps;
    return options->minimum + 0.5 * (options->peak - options->minimum) *
                                  (1.0 + cos(3.14159265358979323846 * share));
}

const rpi_lr_schedule rpi_lr_cosine = {"cosine", "half a cosine down to --lr-min", NULL, rate,
                                       1};
