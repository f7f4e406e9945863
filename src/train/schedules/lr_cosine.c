#include "train/schedules/lr_schedule.h"

#include <math.h>

static rp_status check(const rpi_lr_options *options) {
    if (options->minimum <= options->peak) return RP_OK;
    return RP_FAIL(INVALID, "--lr-min %g is above --lr %g", options->minimum, options->peak);
}

/* Loshchilov, Hutter, "SGDR", 2017, eq. 5, one period: from peak at step 0 to the minimum at
 * step == steps, which is one past the last. */
static double rate(const rpi_lr_options *options, int64_t step, int64_t steps) {
    double share = step < steps ? (double)step / (double)steps : 1.0;
    return options->minimum + 0.5 * (options->peak - options->minimum) *
                                  (1.0 + cos(3.14159265358979323846 * share));
}

const rpi_lr_schedule rpi_lr_cosine = {"cosine", "half a cosine down to --lr-min", check, rate};
