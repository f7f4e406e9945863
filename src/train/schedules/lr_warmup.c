#include "train/schedules/lr_schedule.h"

static rp_status check(const rpi_lr_options *options) {
    if (options->warmup_steps > 0) return RP_OK;
    return RP_FAIL(INVALID, "the schedule warmup needs --lr-warmup-steps");
}

static double rate(const rpi_lr_options *options, int64_t step, int64_t steps) {
    (void)step, (void)steps;
    return options->peak;
}

const rpi_lr_schedule rpi_lr_warmup = {"warmup", "a linear warm-up, then constant", check, rate,
                                       0};
