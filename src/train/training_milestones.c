/* Reports of steps, and what is due after some of them. */
#include "train/training.h"

#include "base/clock.h"
#include "base/status.h"
#include "train/checkpoint/checkpoint.h"
#include "train/divergence.h"
#include "train/replicas.h"
#include "train/text_samples.h"

#include <stdio.h>
#include <string.h>

int rpi_training_asked(const rpi_training *r) {
    return r->hooks->asked ? r->hooks->asked(r->hooks->context) : 0;
}

rp_status rpi_training_evaluate(rpi_training *r) {
    rpi_trainer *t = &r->trainer;
    rpi_evaluation evaluation;
    RP_TRY(rpi_divergence_check(t, NULL));
    RP_TRY(rpi_trainer_evaluate(t, &evaluation));
    RP_TRY(rpi_metrics_evaluation(r->metrics, t->step, &evaluation));
    if (r->hooks->evaluated) r->hooks->evaluated(r->hooks->context, t->step, &evaluation);
    r->result.test = evaluation;
    r->result.evaluated = true;
    r->evaluated_step = t->step;
    rpi_training_tell_note(r);
    return RP_OK;
}

rp_status rpi_training_save(rpi_training *r) {
    rpi_trainer *t = &r->trainer;
    RP_TRY(rpi_replicas_check(t));
    RP_TRY(rpi_checkpoint_save(t, r->options->out));
    r->saved_step = t->step;
    r->saved_ns = rpi_now_ns();
    (void)rpi_training_asked(r); /* so that the same state is not saved again */
    char path[1024];
    if (r->hooks->saved)
        r->hooks->saved(r->hooks->context, t->step,
                        rpi_checkpoint_path(r->options->out, path, sizeof path));
    return RP_OK;
}

/* The others continue meanwhile, as far as they can without rank 0. */
static rp_status write_sample(rpi_training *r) {
    rpi_trainer *t = &r->trainer;
    rpi_text text = {0};
    r->sampled_step = t->step;
    RP_TRY(rpi_trainer_complete(t));
    RP_TRY(rpi_trainer_hold_values(t));
    rp_status status = t->place.rank == 0 ? rpi_text_sample_write(t, &text) : RP_OK;
    rpi_trainer_release_values(t);
    RP_TRY(status);
    if (t->place.rank != 0) return RP_OK;
    status = rpi_metrics_sample(r->metrics, t->step, r->options->prompt, text.at);
    if (status == RP_OK && r->hooks->sampled)
        r->hooks->sampled(r->hooks->context, t->step, text.at);
    rpi_text_free(&text);
    return status;
}

static bool due(int64_t step, int64_t every) {
    return every > 0 && step % every == 0;
}

/* Bits of tensors, in words. */
static void tell_choice(rpi_training *r) {
    rpi_trainer *t = &r->trainer;
    char line[RPI_BIT_CHOICE_TEXT + 64];
    if (!t->choice[0]) return;
    snprintf(line, sizeof line, "codec auto, from step %lld on: %s", (long long)t->step + 1,
             t->choice);
    t->choice[0] = '\0';
    if (r->hooks->note) r->hooks->note(r->hooks->context, line);
}

void rpi_training_tell_note(rpi_training *r) {
    char *rest = r->trainer.note;
    for (char *line = strtok_r(rest, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        if (r->hooks->note) r->hooks->note(r->hooks->context, line);
    r->trainer.note[0] = '\0';
}

rp_status rpi_training_take_step(void *context, const rpi_step_metrics *metrics) {
    rpi_training *r = context;
    RP_TRY(rpi_metrics_step(r->metrics, metrics));
    r->history[r->result.steps++ % RPI_MEDIAN_STEPS] = *metrics;
    r->result.seconds += metrics->step_s;
    r->result.last_loss = metrics->loss;
    r->told_step = metrics->step;
    if (r->hooks->stepped) r->hooks->stepped(r->hooks->context, metrics);
    return RP_OK;
}

/* The exchanged requests are the same on all ranks, so all stop together. */
static rp_status tell_step(rpi_training *r, const rpi_told_step *told) {
    const rpi_step_metrics *metrics = &told->metrics;
    RP_TRY(rpi_training_take_step(r, metrics));
    rp_status status = rpi_divergence_report(&r->trainer, told->faults, told->stride,
                                             metrics->step, metrics->step - 1);
    if (status != RP_OK) r->diverged = true;
    return status;
}

rp_status rpi_training_tell_steps(rpi_training *r) {
    rpi_told_step told;
    while (rpi_step_reports_take(&r->trainer.reports, &told)) RP_TRY(tell_step(r, &told));
    return RP_OK;
}

/* Does something follow that needs all earlier steps to have succeeded and been reported? */
static bool is_milestone(const rpi_training *r) {
    const rpi_train_options *o = r->options;
    int64_t step = r->trainer.step;
    return r->asked || step == r->trainer.total_steps || due(step, o->check_replicas) ||
           (o->eval && due(step, o->eval_every)) || due(step, o->checkpoint_every) ||
           due(step, o->sample_every);
}

rp_status rpi_training_tell(rpi_training *r) {
    rpi_step_reports *reports = &r->trainer.reports;
    RP_TRY(rpi_training_tell_steps(r));
    r->asked |= rpi_step_reports_asked(reports);
    if (is_milestone(r)) {
        RP_TRY(rpi_step_reports_flush(reports));
        RP_TRY(rpi_training_tell_steps(r));
        r->asked |= rpi_step_reports_asked(reports);
    }
    tell_choice(r);
    rpi_training_tell_note(r);
    return RP_OK;
}

static rp_status do_what_is_due(rpi_training *r) {
    const rpi_train_options *o = r->options;
    int64_t step = r->trainer.step;
    if (due(step, o->check_replicas)) RP_TRY(rpi_replicas_check(&r->trainer));
    r->result.stopped = (r->asked & RPI_ASKED_STOP) != 0; /* somebody waits for the end */
    if (o->eval && due(step, o->eval_every) && r->evaluated_step != step && !r->result.stopped)
        RP_TRY(rpi_training_evaluate(r));
    if (due(step, o->sample_every) && r->sampled_step != step && !r->result.stopped)
        RP_TRY(write_sample(r));
    if (rpi_training_saves(o) && r->saved_step != step &&
        (r->asked || due(step, o->checkpoint_every)))
        RP_TRY(rpi_training_save(r));
    r->asked = 0;
    return RP_OK;
}

/* What ranks send for that does not belong to a step; nor do bytes of the last step that are
 * still under way. */
rp_status rpi_training_pass_milestone(rpi_training *r) {
    rpi_trainer *t = &r->trainer;
    rp_comm_stats since;
    if (!is_milestone(r)) return RP_OK;
    RP_TRY(rpi_trainer_complete(t));
    rpi_grid_comms_stats(&t->comms, t->comm, &since);
    RP_TRY(do_what_is_due(r));
    rpi_trainer_count_not(t, &since);
    return RP_OK;
}

int64_t rpi_training_next_milestone(const rpi_training *r) {
    const rpi_train_options *o = r->options;
    int64_t next = r->trainer.total_steps, step = r->trainer.step;
    const int64_t every[] = {o->check_replicas, o->eval ? o->eval_every : 0, o->sample_every,
                             rpi_training_saves(o) ? o->checkpoint_every : 0};
    for (size_t i = 0; i < sizeof every / sizeof every[0]; i++) {
        int64_t at = every[i] > 0 ? (step / every[i] + 1) * every[i] : next;
        if (at < next) next = at;
    }
    return next;
}
