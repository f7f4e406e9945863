#include "train/schedules/lr_schedule.h"

#include "base/suggest.h"

#include <string.h>

extern const rpi_lr_schedule rpi_lr_constant;
extern const rpi_lr_schedule rpi_lr_warmup;
extern const rpi_lr_schedule rpi_lr_step;
extern const rpi_lr_schedule rpi_lr_cosine;

static const rpi_lr_schedule *const schedules[] = {
    &rpi_lr_constant,
    &rpi_lr_warmup,
    &rpi_lr_step,
    &rpi_lr_cosine,
};
enum { SCHEDULES = sizeof schedules / sizeof schedules[0] };

const rpi_lr_schedule *rpi_lr_schedule_at(int index) {
    return index >= 0 && index < SCHEDULES ? schedules[index] : NULL;
}

static const char *name_at(const void *context, int index) {
    (void)context;
    return index < SCHEDULES ? schedules[index]->name : NULL;
}

rp_status rpi_lr_schedule_find(const char *name, const rpi_lr_schedule **out_schedule) {
    for (int i = 0; i < SCHEDULES; i++) {
        if (strcmp(schedules[i]->name, name) != 0) continue;
        *out_schedule = schedules[i];
        return RP_OK;
    }
    char hint[96];
    return RP_FAIL(
        INVALID,
        "unknown learning-rate schedule '%s'; there are constant, warmup, step, cosine%s", name,
        rpi_suggest_text(name, name_at, NULL, hint, sizeof hint));
}

rp_status rpi_lr_check(const rpi_lr_schedule *schedule, const rpi_lr_options *options) {
    if (options->warmup_steps < 0)
        return RP_FAIL(INVALID, "%lld warm-up steps; at least 0",
                       (long long)options->warmup_steps);
    return schedule->check ? schedule->check(options) : RP_OK;
}

double rpi_lr_at(const rpi_lr_schedule *schedule, const rpi_lr_options *options, int64_t step) {
    if (step < options->warmup_steps)
        return options->peak * (double)(step + 1) / (double)options->warmup_steps;
    int64_t steps = options->total_steps - options->warmup_steps;
    return schedule->rate(options, step - options->warmup_steps, steps > 1 ? steps : 1);
}
