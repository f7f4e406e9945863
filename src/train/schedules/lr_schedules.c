#include "train/schedules/lr_schedule.h"

#include "base/suggest.h"

#include <stdbool.h>

extern const rpi_lr_schedule rpi_lr_constant;
extern const rpi_lr_schedule rpi_lr_warmup;
extern const rpi_lr_schedule rpi_lr_step;
extern const rpi_lr_schedule rpi_lr_cosine;
extern const rpi_lr_schedule rpi_lr_linear;
extern const rpi_lr_schedule rpi_lr_root;
extern const rpi_lr_schedule rpi_lr_wsd;
extern const rpi_lr_schedule rpi_lr_inverse_sqrt;

static const rpi_lr_schedule *const schedules[] = {
    &rpi_lr_constant, &rpi_lr_warmup, &rpi_lr_step, &rpi_lr_cosine,
    &rpi_lr_linear,   &rpi_lr_root,   &rpi_lr_wsd,  &rpi_lr_inverse_sqrt,
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
    int index = 0;
    RP_TRY(rpi_name_find("learning-rate schedule", name, name_at, NULL, &index));
    *out_schedule = schedules[index];
    return RP_OK;
}

rp_status rpi_lr_check(const rpi_lr_schedule *schedule, const rpi_lr_options *options) {
    if (options->warmup_steps < 0)
        return RP_FAIL(INVALID, "%lld warm-up steps; at least 0",
                       (long long)options->warmup_steps);
    bool moved = options->decay_start || options->decay_steps;
    if (moved && !(schedule->decays > 0))
        return RP_FAIL(INVALID,
                       "--lr-decay-start and --lr-decay-steps belong to schedules that go down "
                       "to --lr-min; %s does not",
                       schedule->name);
    if (options->decay_start < 0 || options->decay_steps < 0)
        return RP_FAIL(INVALID, "--lr-decay-start and --lr-decay-steps are at least 0");
    if (options->decay_start && options->decay_start < options->warmup_steps)
        return RP_FAIL(INVALID,
                       "decay starts at step %lld, before the end of the warm-up, %lld",
                       (long long)options->decay_start, (long long)options->warmup_steps);
    if (schedule->decays > 0 && options->minimum > options->peak)
        return RP_FAIL(INVALID, "--lr-min %g is above --lr %g", options->minimum,
                       options->peak);
    return schedule->check ? schedule->check(options) : RP_OK;
}

/* The steps [start, start + length) in which a kind goes down. What decays in a part of the run
 * does so at its end. */
static int64_t decay_range(const rpi_lr_schedule *schedule, const rpi_lr_options *o,
                           int64_t *out_length) {
    int64_t run = o->total_steps - o->warmup_steps;
    int64_t length = (int64_t)(schedule->decays * (double)run + 0.5);
    if (o->decay_start) length = o->total_steps - o->decay_start;
    if (o->decay_steps) length = o->decay_steps;
    if (length < 1) length = 1;
    *out_length = length;
    if (o->decay_start) return o->decay_start;
    return schedule->decays < 1 ? o->total_steps - length : o->warmup_steps;
}

static double decayed(const rpi_lr_schedule *schedule, const rpi_lr_options *options,
                      int64_t step) {
    int64_t length = 0, done = step - decay_range(schedule, options, &length);
    if (done <= 0) return options->peak;
    return schedule->rate(options, done < length ? done : length, length);
}

double rpi_lr_at(const rpi_lr_schedule *schedule, const rpi_lr_options *options, int64_t step) {
    if (step < options->warmup_steps)
        return options->peak * (double)(step + 1) / (double)options->warmup_steps;
    if (schedule->decays > 0) return decayed(schedule, options, step);
    int64_t steps = options->total_steps - options->warmup_steps;
    return schedule->rate(options, step - options->warmup_steps, steps > 1 ? steps : 1);
}
