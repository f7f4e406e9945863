/* Deaths of ranks that the others survive (rejoin.h). */
#include "train/training.h"

#include "base/append.h"
#include "base/status.h"
#include "train/checkpoint/checkpoint.h"

#include <stdio.h>

static rp_status take_alone(rpi_training *r) {
    size_t count = 0;
    const rpi_step_metrics *alone = rpi_step_reports_alone(&r->trainer.reports, &count);
    for (size_t i = 0; i < count; i++) RP_TRY(rpi_training_take_step(r, &alone[i]));
    return RP_OK;
}

void rpi_training_note_loss(rpi_training *r, const rpi_loss *loss, bool first) {
    char *lost = r->result.lost;
    for (int i = 0; i < loss->count; i++)
        rpi_append(lost, sizeof r->result.lost, "%srank %d after step %lld", *lost ? ", " : "",
                   loss->ranks[i], (long long)loss->step);
    if (r->hooks->lost) r->hooks->lost(r->hooks->context, loss, first);
}

/* Rank 0's metrics are continued here, from the step after its last. */
static rp_status take_over_output(rpi_training *r) {
    const rpi_train_options *o = r->options;
    rpi_trainer *t = &r->trainer;
    if (!o->out) return RP_OK;
    bool is_new = rpi_metrics_last_step(o->out) < 0;
    RP_TRY(rpi_metrics_open(o->out, true, &r->metrics)); /* without half a last line */
    if (is_new) RP_TRY(rpi_metrics_header(r->metrics, t));
    int64_t written = rpi_metrics_last_step(o->out), kept = r->result.steps;
    for (int64_t i = kept < RPI_MEDIAN_STEPS ? 0 : kept - RPI_MEDIAN_STEPS; i < kept; i++) {
        const rpi_step_metrics *own = &r->history[i % RPI_MEDIAN_STEPS];
        if (own->step > written) RP_TRY(rpi_metrics_step(r->metrics, own));
    }
    return RP_OK;
}

rpi_standing rpi_training_standing(const rpi_training *r) {
    return (rpi_standing){.step = (double)r->trainer.step,
                          .evaluated = (double)r->evaluated_step,
                          .saved = (double)r->saved_step,
                          .good = (double)r->trainer.good_step,
                          .asked = r->asked};
}

void rpi_training_take_standing(rpi_training *r, const rpi_standing *standing) {
    rpi_trainer *t = &r->trainer;
    r->evaluated_step = (int64_t)standing->evaluated;
    r->saved_step = (int64_t)standing->saved;
    r->is_profiled = false;
    r->asked = (int)standing->asked;
    if (standing->good <= (double)t->good_step) return;
    t->good_step = (int64_t)standing->good;
    t->newest_is_good = true;
    snprintf(t->good_folder, sizeof t->good_folder, "%s", r->options->out);
}

static rp_status rejoin(rpi_training *r, rpi_loss *out_loss) {
    rpi_trainer *t = &r->trainer;
    int asked = 0;
    RP_TRY(rpi_training_tell_steps(r));
    if (!t->reports.is_alone) RP_TRY(rpi_step_reports_leave(&t->reports, &asked));
    r->asked |= asked | (r->result.stopped ? RPI_ASKED_STOP : 0);
    rpi_standing standing = rpi_training_standing(r);
    RP_TRY(rpi_trainer_rejoin(t, &standing, out_loss));
    rpi_training_take_standing(r, &standing);
    return RP_OK;
}

/* The other ranks continue together, after the step that all have completed. */
static rp_status go_on(rpi_training *r) {
    rpi_trainer *t = &r->trainer;
    rpi_loss loss;
    int rank = t->place.rank;
    RP_TRY(rejoin(r, &loss));
    bool first = t->place.rank == 0 && rank > 0;
    rpi_training_note_loss(r, &loss, first);
    RP_TRY(take_alone(r));
    rpi_step_reports_rejoin(&t->reports, t->comm);
    if (first) RP_TRY(take_over_output(r));
    if (t->place.rank == 0 && r->options->out) rpi_checkpoint_take_over(t, r->options->out);
    RP_TRY(rpi_metrics_loss(r->metrics, t, &loss));
    RP_TRY(rpi_training_tell(r));
    return rpi_training_pass_milestone(r);
}

rp_status rpi_training_survive(rpi_training *r, rp_status status) {
    for (;;) {
        RP_TRY(rpi_losses_survive(&r->trainer.losses, status));
        if (!r->trainer.losses.is_pending) return RP_OK;
        status = go_on(r);
    }
}
