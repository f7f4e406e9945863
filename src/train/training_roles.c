/* Ranks with roles: steps in spans, and ranks that come back between two of them (returns.h).
 */
#include "train/training.h"

#include "base/append.h"
#include "base/clock.h"
#include "base/status.h"
#include "train/checkpoint/checkpoint.h"

#include <stdio.h>

static rp_status compare_standings(rpi_training *r) {
    rpi_standing standing = rpi_training_standing(r);
    RP_TRY(rpi_trainer_compare(&r->trainer, &standing));
    rpi_training_take_standing(r, &standing);
    if (r->trainer.place.rank == 0 && r->options->out)
        rpi_checkpoint_take_over(&r->trainer, r->options->out);
    return RP_OK;
}

rp_status rpi_training_do_together(rpi_training *r, rp_status (*what)(rpi_training *r)) {
    bool again = false;
    do {
        rp_status status = again ? compare_standings(r) : RP_OK;
        if (status == RP_OK) status = what(r);
        RP_TRY(rpi_trainer_confirm(&r->trainer, status, &again));
    } while (again);
    return RP_OK;
}

rp_status rpi_training_tell_lost(rpi_training *r) {
    rpi_loss loss;
    if (!rpi_trainer_find_lost(&r->trainer, &loss)) return RP_OK;
    rpi_training_note_loss(r, &loss, false);
    return rpi_metrics_loss(r->metrics, &r->trainer, &loss);
}

static rp_status close_span(rpi_training *r) {
    RP_TRY(rpi_trainer_close_span(&r->trainer, &r->span_end));
    RP_TRY(rpi_training_tell_lost(r));
    r->asked |= r->span_end.asked;
    r->admits = (r->asked & RPI_ASKED_ADMIT) != 0;
    r->asked &= ~RPI_ASKED_ADMIT;
    return rpi_training_pass_milestone(r);
}

static rp_status try_growth(rpi_training *r) {
    rpi_run_state state = {.standing = rpi_training_standing(r),
                           .steps = (double)r->result.steps};
    state.standing.step = (double)r->trainer.step;
    RP_TRY(rpi_training_tell_lost(r));
    return rpi_readmission_try(&r->trainer, &state, &r->readmission);
}

static void note_failed_return(const rpi_training *r) {
    char line[400];
    if (!r->readmission.why[0] || !r->hooks->note) return;
    snprintf(line, sizeof line, "nobody has come back: %s", r->readmission.why);
    r->hooks->note(r->hooks->context, line);
}

static rp_status admit(rpi_training *r) {
    rpi_back back;
    char *text = r->result.back;
    RP_TRY(rpi_training_do_together(r, try_growth));
    if (!r->readmission.is_ready) {
        note_failed_return(r);
        return RP_OK;
    }
    rpi_readmission_take(&r->trainer, &r->readmission, &back);
    for (int i = 0; i < back.count; i++)
        rpi_append(text, sizeof r->result.back, "%srank %d behind step %lld", *text ? ", " : "",
                   back.ranks[i], (long long)back.step);
    if (r->hooks->note) r->hooks->note(r->hooks->context, back.line);
    return rpi_metrics_return(r->metrics, &r->trainer, &back);
}

static bool goes_on(const rpi_training *r) {
    return r->trainer.step < r->trainer.total_steps && !r->result.stopped;
}

/* A rank that comes back may die while it does, and come again. */
static rp_status await_workers(rpi_training *r) {
    const rpi_train_returns *way = r->options->returns;
    int64_t deadline_ns = rpi_deadline_ns(way ? way->timeout_s : 0);
    while (goes_on(r) && rpi_training_lacks_workers(r)) {
        RP_TRY(rpi_training_wait_for_workers(r, deadline_ns));
        if (!r->result.stopped) RP_TRY(admit(r));
    }
    return RP_OK;
}

/* Steps are reported where they are counted, on rank 0. */
rp_status rpi_training_span(rpi_training *r) {
    rpi_trainer *t = &r->trainer;
    int64_t before = t->step;
    RP_TRY(rpi_trainer_span(t, rpi_training_next_milestone(r), rpi_training_take_step, r,
                            &r->span_end));
    rpi_training_tell_note(r);
    RP_TRY(rpi_training_do_together(r, close_span));
    if (t->place.rank > 0) r->result.steps += t->step - before;
    if (r->admits && goes_on(r)) RP_TRY(admit(r));
    return await_workers(r);
}
