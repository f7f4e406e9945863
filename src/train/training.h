/* One rank's run, between the files of the training loop: train_loop.c has the order of things,
 * and each of the others what it is called for. */
#ifndef RPI_TRAIN_TRAINING_H
#define RPI_TRAIN_TRAINING_H

#include "train/metrics.h"
#include "train/rejoin.h"
#include "train/returns.h"
#include "train/trainer.h"

typedef struct rpi_training {
    rpi_trainer trainer;
    const rpi_train_options *options;
    const rpi_train_hooks *hooks;
    rpi_metrics *metrics;        /* rank 0's */
    rpi_step_metrics *history;   /* of the latest steps, a ring */
    double *scratch;             /* as many */
    int64_t told_step;           /* the latest of which all ranks' reports are there */
    bool diverged;               /* in that one */
    bool is_profiled;            /* with all others */
    rpi_span_end span_end;       /* of ranks with roles: of the latest span */
    int asked;                   /* what ranks are asked for, until they have done it */
    rpi_readmission readmission; /* of ranks with roles: who comes back */
    bool admits;                 /* somebody waits, and all know it */
    int64_t saved_step, evaluated_step, sampled_step;
    int64_t saved_ns; /* when, or when the first step began */
    rpi_train_result result;
} rpi_training;

static inline bool rpi_training_saves(const rpi_train_options *options) {
    return options->checkpoint && options->out;
}

/* ---- training_start.c ---- */

/* All that comes before the first step. Collective over `comm`, which is borrowed. */
rp_status rpi_training_start(rpi_training *r, rp_comm *comm);
/* The same for a rank that comes back: it has all that it needs before the others wait for it.
 * RP_CANCELLED, without a communicator: it came too late, or was told to end meanwhile. */
rp_status rpi_training_come_back(rpi_training *r);

/* ---- training_milestones.c ---- */

/* What the process is asked for from outside, RPI_ASKED_...; forgotten once it is told. */
int rpi_training_asked(const rpi_training *r);
rp_status rpi_training_evaluate(rpi_training *r); /* collective, as is save() */
rp_status rpi_training_save(rpi_training *r);
/* Record one step; `context` is the run. */
rp_status rpi_training_take_step(void *context, const rpi_step_metrics *metrics);
/* Record what ranks have told each other so far. Local. Fails where a step has diverged, on all
 * ranks for the same one. */
rp_status rpi_training_tell_steps(rpi_training *r);
/* That, and what all ranks are asked for, as far as they all know it after this step.
 * Collective before milestones. */
rp_status rpi_training_tell(rpi_training *r);
void rpi_training_tell_note(rpi_training *r);
/* What is due after the steps that are done, and what ranks are asked for. What all have done
 * behind this step already, before a rank died, is not done again. Collective. */
rp_status rpi_training_pass_milestone(rpi_training *r);
/* The next step behind which something is due, in which all ranks take part. */
int64_t rpi_training_next_milestone(const rpi_training *r);

/* ---- training_losses.c ---- */

/* What became of a step, or of what is due behind one: RP_OK where it failed because ranks died
 * and those that are left have gone on behind the step which all have done. */
rp_status rpi_training_survive(rpi_training *r, rp_status status);
/* `first`: this rank is the first of those that are left, and was not before. */
void rpi_training_note_loss(rpi_training *r, const rpi_loss *loss, bool first);
/* How far this rank is, and taking over what all have done. */
rpi_standing rpi_training_standing(const rpi_training *r);
void rpi_training_take_standing(rpi_training *r, const rpi_standing *standing);

/* ---- training_roles.c ---- */

/* The steps up to the next milestone, and that. */
rp_status rpi_training_span(rpi_training *r);
/* Again, as far as it is left to do, as long as ranks die meanwhile that the run outlives. */
rp_status rpi_training_do_together(rpi_training *r, rp_status (*what)(rpi_training *r));
rp_status rpi_training_tell_lost(rpi_training *r);

/* ---- training_waits.c ---- */

/* Has every worker been lost? */
bool rpi_training_lacks_workers(const rpi_training *r);
/* Servers wait for one that the launcher starts again, until it asks for its place (RP_OK), or
 * they are told to end (r->result.stopped). deadline_ns: of the whole of it. RP_PEER: none is
 * started again; RP_TIMEOUT: none has come. The same on all. Collective. */
rp_status rpi_training_wait_for_workers(rpi_training *r, int64_t deadline_ns);

/* ---- training_summary.c ---- */

/* Once. All ranks at once, as they share the machine while they train. */
rp_status rpi_training_finish_profile(rpi_training *r);
/* By how much activations were off that ranks handed each other. Collective where their codec
 * is lossy; may be done again. */
rp_status rpi_training_finish_activations(rpi_training *r);
/* The last step of this run, of ranks that hold a model together, for `redpoll report`.
 * Collective; may be done again. */
rp_status rpi_training_draw(rpi_training *r);
void rpi_training_summarise(rpi_training *r);

#endif
