#include "train/schedules/lr_schedule.h"

#include <math.h>

static rp_status check(const rpi_lr_options *options) {
    if (options->drop_every > 0) return RP_OK;
    return RP_FAIL(INVALID, "the schedule step needs --lr-drop-every");
}

/* peak * gamma^floor(step / drop_every) */
static double rate(const rpi_lr_options *options, int64_t step, int64_t steps) {
    (void)steps;
    int64_t drops = step / options->drop_every;
    return options->peak * pow(options->gamma, (double)drops);
}

const rpi_lr_schedule rpi_lr_step = {"step", "times --lr-gamma every --lr-drop-every steps",
                                     check, rate, 0};
