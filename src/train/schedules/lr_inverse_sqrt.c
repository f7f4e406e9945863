#include "train/schedules/lr_schedule.h"

#include <math.h>

/* Vaswani et al., "Attention is all you need", 2017, eq. 3: with W steps of warm-up the rate
 * of step s is peak * sqrt(W / s), and reaches the peak at W. */
static double rate(const rpi_lr_options *options, int64_t step, int64_t steps) {
    (void)steps;
    double warmup = options->warmup_steps > 0 ? (double)options->warmup_steps : 1;
    return options->peak * sqrt(warmup / (warmup + (double)step));
}

const rpi_lr_schedule rpi_lr_inverse_sqrt = {
    "inverse-sqrt", "by the inverse square root of the step", NULL, rate, 0};
