/* Warm-up, stable, decay: Hu et al., "MiniCPM", 2024. That 1 - sqrt over the last fifth does
 * best: Haegele et al., "Scaling laws and compute-optimal training beyond fixed training
 * durations", 2024. */
#include "train/schedules/lr_schedule.h"

#include <math.h>

static double rate(const rpi_lr_options *options, int64_t step, int64_t steps) {
    double left = 1 - sqrt((double)step / (double)steps);
    return options->minimum + left * (options->peak - options->minimum);
}

const rpi_lr_schedule rpi_lr_root = {"1-sqrt", "1 minus a square root, down to --lr-min", NULL,
                                     rate, 1};
const rpi_lr_schedule rpi_lr_wsd = {
    "wsd", "the peak, then 1-sqrt over the last --lr-decay-steps, or a fifth of the run", NULL,
    rate, 0.2};
