#include "train/strategies/codec_trial.h"

#include "base/clock.h"
#include "base/status.h"

#include <stdio.h>

/* A tensor that is sent exactly, and has no residual left, needs no error feedback. */
static void drop_empty_residuals(rpi_codec_trial *t) {
    for (int i = 0; i < t->buckets->segment_count; i++) {
        rp_segment *segment = &t->buckets->segments[i];
        if (t->chooser->chooses[i] || !segment->residual) continue;
        size_t held = 0;
        while (held < segment->count && segment->residual[held] == 0) held++;
        if (held == segment->count) segment->residual = NULL;
    }
}

static void follow(rpi_codec_trial *t) {
    if (!t->limited) rpi_bit_chooser_limit(t->chooser, t->buckets, *t->lossy_from);
    t->limited = true;
    drop_empty_residuals(t);
}

rpi_trial_step rpi_codec_trial_begin(rpi_codec_trial *t) {
    if (!t->lossy_from) return (rpi_trial_step){0};
    if (*t->lossy_from != RPI_LOSSY_UNKNOWN) {
        follow(t);
        return (rpi_trial_step){0};
    }
    int way = rp_step_trial_begin(&t->steps, rpi_seconds(rpi_now_ns()));
    return (rpi_trial_step){.goes_exact = way == RP_TRIAL_EXACT,
                            .is_first_lossy = t->steps.steps == RP_TRIAL_STEPS + 2,
                            .asks = t->steps.steps == 1 || way == RP_TRIAL_OVER};
}

static void settle(rpi_codec_trial *t, int64_t lossy_from) {
    *t->lossy_from = lossy_from;
    follow(t);
}

static rp_status compare(rpi_codec_trial *t, char text[RP_COMPARISON_TEXT]) {
    RP_TRY(rpi_bit_chooser_compare(t->chooser, t->buckets, t->comm, t->algorithm, &t->found,
                                   text));
    if (t->found == RPI_LOSSY_NEVER)
        settle(t, RPI_LOSSY_NEVER);
    else
        rpi_bit_chooser_limit(t->chooser, t->buckets, t->found);
    return RP_OK;
}

static rp_status settle_by_steps(rpi_codec_trial *t, char text[RP_COMPARISON_TEXT]) {
    double seconds[2];
    RP_TRY(rp_step_trial_times(&t->steps, seconds));
    rp_segment both = {.data = seconds, .count = 2, .dtype = RP_F64};
    RP_TRY(rp_all_reduce(t->comm, &both, 1,
                         &(rp_collective_options)RP_COLLECTIVE_OPTIONS(.reduce = RP_MAX)));
    bool gains = rp_step_trial_gains(seconds);
    settle(t, gains ? t->found : RPI_LOSSY_NEVER);
    snprintf(text, RP_COMPARISON_TEXT, "%s: steps take %.3g ms with fp32 and %.3g ms lossy",
             gains ? "lossy" : "fp32", seconds[0] * 1e3, seconds[1] * 1e3);
    return RP_OK;
}

rp_status rpi_codec_trial_ask(rpi_codec_trial *t, char text[RP_COMPARISON_TEXT]) {
    return t->steps.steps == 1 ? compare(t, text) : settle_by_steps(t, text);
}
