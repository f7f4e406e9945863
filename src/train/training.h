/* One rank's run, shared by the files of the training loop: train_loop.c has the order of
 * events, and each of the others what its name says. */
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
    int64_t told_step;           /* the latest of which the reports of all ranks are here */
    bool diverged;               /* in that one */
    bool is_profiled;            /* with all others */
    rpi_span_end span_end;       /* with roles: of the latest span */
    int asked;                   /* what ranks are asked to do, until they have done it */
    rpi_readmission readmission; /* with roles: which ranks come back */
    bool admits;                 /* a rank waits, and all know it */
    int64_t saved_step, evaluated_step, sampled_step;
    int64_t saved_ns; /* when it ended, or when the first step began */
    rpi_train_result result;
} rpi_training;

static inline bool rpi_training_saves(const rpi_train_options *options) {
    return options->checkpoint && options->out;
}

/* ---- training_start.c ---- */

/* Everything before the first step. Collective over `comm`, which is borrowed. */
rp_status rpi_training_start(rpi_training *r, rp_comm *comm);
/* The same for a rank that comes back: it has all that it needs before the others wait for it.
 * RP_CANCELLED, without a communicator: it came too late, or was told to end meanwhile. */
rp_status rpi_training_come_back(rpi_training *r);

/* ---- training_milestones.c ---- */

/* The requests to the process from outside, RPI_ASKED_...; cleared when they are passed on. */
int rpi_training_asked(const rpi_training *r);
rp_status rpi_training_evaluate(rpi_training *r); /* collective, as is save() */
rp_status rpi_training_save(rpi_training *r);
/* Record one step; `context` is the run. */
rp_status rpi_training_take_step(void *context, const rpi_step_metrics *metrics);
/* Record what ranks have exchanged so far. Local. Fails if a step has diverged, on all ranks
 * for the same one. */
rp_status rpi_training_tell_steps(rpi_training *r);
/* The same, and the requests to all ranks, as far as all know them after this step. Collective
 * before milestones. */
rp_status rpi_training_tell(rpi_training *r);
void rpi_training_tell_note(rpi_training *r);
/* Do what is due after the completed steps, and what ranks are asked for. If all have done
 * something after this step already, before a rank died, it is not repeated. Collective. */
rp_status rpi_training_pass_milestone(rpi_training *r);
/* The next step after which something is due in which all ranks take part. */
int64_t rpi_training_next_milestone(const rpi_training *r);

/* ---- training_losses.c ---- */

/* The result of a step, or of what is due after one: RP_OK if it failed because ranks died and
 * the others have gone on after the step that all have completed. */
rp_status rpi_training_survive(rpi_training *r, rp_status status);
/* `first`: this rank is the first of those that are left, and was not before. */
void rpi_training_note_loss(rpi_training *r, const rpi_loss *loss, bool first);
/* Publish how far this rank is, and take over the step that all have completed. */
rpi_standing rpi_training_standing(const rpi_training *r);
void rpi_training_take_standing(rpi_training *r, const rpi_standing *standing);

/* ---- training_roles.c ---- */

/* The steps up to the next milestone, and that. */
rp_status rpi_training_span(rpi_training *r);
/* Repeat it, as far as it is not done, as long as ranks die meanwhile that the run survives. */
rp_status rpi_training_do_together(rpi_training *r, rp_status (*what)(rpi_training *r));
rp_status rpi_training_tell_lost(rpi_training *r);

/* ---- training_waits.c ---- */

/* Has every worker been lost? */
bool rpi_training_lacks_workers(const rpi_training *r);
/* Servers wait for a worker that the launcher restarts, until it asks for its place (RP_OK), or
 * they are told to end (r->result.stopped). deadline_ns: of the whole wait. RP_PEER: none is
 * restarted; RP_TIMEOUT: none has come. The same on all. Collective. */
rp_status rpi_training_wait_for_workers(rpi_training *r, int64_t deadline_ns);

/* ---- training_summary.c ---- */

/* Once. All ranks at the same time, as they share the machine while they train. */
rp_status rpi_training_finish_profile(rpi_training *r);
/* The relative error of activations that were sent between ranks. Collective if their codec is
 * lossy; may be repeated. */
rp_status rpi_training_finish_activations(rpi_training *r);
/* The last step of this run, for ranks that share a model, for `redpoll report`. Collective;
 * may be repeated. */
rp_status rpi_training_draw(rpi_training *r);
void rpi_training_summarise(rpi_training *r);

#endif
