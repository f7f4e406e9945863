/* A run from its options to its result, in the order of events. */
#include "train/training.h"

#include "base/append.h"
#include "base/memory.h"
#include "base/status.h"
#include "train/checkpoint/run_folder.h"
#include "train/divergence.h"

#include <stdio.h>
#include <string.h>

static rp_status train_step(rpi_training *r) {
    rpi_step_metrics own;
    RP_TRY(rpi_trainer_step(&r->trainer, &own));
    if (r->trainer.losses.is_pending) return RP_OK;
    RP_TRY(rpi_training_tell(r));
    return rpi_training_pass_milestone(r);
}

static rp_status step(rpi_training *r) {
    return rpi_training_survive(r, train_step(r));
}

static rp_status write_trace(const rpi_training *r) {
    const rpi_trainer *t = &r->trainer;
    char path[1024];
    if (!t->timeline || !r->options->out) return RP_OK;
    snprintf(path, sizeof path, "%s/trace.json", r->options->out);
    return rpi_timeline_write(t->timeline, t->comm, path);
}

/* What all ranks do together at the end; the rest of it is repeated if one dies meanwhile. No
 * rank leaves before all of it is done, because the others would take it for dead. */
static rp_status close_together(rpi_training *r) {
    const rpi_train_options *o = r->options;
    rpi_trainer *t = &r->trainer;
    RP_TRY(rpi_training_finish_profile(r));
    RP_TRY(rpi_training_finish_activations(r));
    RP_TRY(rpi_training_draw(r));
    RP_TRY(rpi_divergence_check(t, NULL));
    bool new_steps = r->result.steps > 0 || !rpi_run_folder_continues(o);
    if (rpi_training_saves(o) && r->saved_step != t->step && new_steps)
        RP_TRY(rpi_training_save(r));
    if (o->eval && r->evaluated_step != t->step && !r->result.stopped)
        RP_TRY(rpi_training_evaluate(r));
    RP_TRY(write_trace(r));
    return t->losses.goes_on ? rp_barrier(t->comm) : RP_OK;
}

static rp_status close_roles(rpi_training *r) {
    RP_TRY(rpi_training_tell_lost(r));
    return close_together(r);
}

static rp_status close_all_alike(rpi_training *r) {
    rp_status status = close_together(r);
    while (status != RP_OK) {
        RP_TRY(rpi_training_survive(r, status));
        status = close_together(r);
    }
    return RP_OK;
}

/* A rank that came back too late, or was told to end while it waited, has done nothing. */
static bool is_idle_end(rpi_training *r, rp_status status) {
    if (status != RP_CANCELLED || r->trainer.comm) return false;
    r->result.stopped = !r->result.is_late;
    return true;
}

static rp_status run_all(rpi_training *r, rp_comm *comm) {
    rp_status status = comm ? rpi_training_start(r, comm) : rpi_training_come_back(r);
    if (!comm && is_idle_end(r, status)) return RP_OK;
    RP_TRY(status);
    /* what a strategy says about its options, before the first step */
    rpi_training_tell_note(r);
    rpi_trainer_count_from_here(&r->trainer); /* bytes sent at the start belong to no step */
    bool has_roles = r->trainer.strategy->run != NULL;
    while (r->trainer.step < r->trainer.total_steps && !r->result.stopped)
        RP_TRY(has_roles ? rpi_training_span(r) : step(r));
    RP_TRY(has_roles ? rpi_training_do_together(r, close_roles) : close_all_alike(r));
    rpi_training_summarise(r);
    return rpi_metrics_closing(r->metrics, &r->result);
}

static rp_status close_run(rpi_training *r) {
    if (r->trainer.place.rank == 0) rpi_return_close(&r->readmission.requests);
    rpi_trainer_close(&r->trainer);
    rpi_readmission_close(&r->readmission);
    rpi_free(r->history);
    rpi_free(r->scratch);
    return rpi_metrics_close(r->metrics);
}

/* For a rank that holds a part of a model: names the rank, and the one that is lost, in the
 * words that the others are told. */
static void say_why(const rpi_trainer *t, const char *why, char message[RPI_ERROR_BYTES]) {
    char place[RPI_GRID_TEXT];
    snprintf(message, RPI_ERROR_BYTES, "%s", why);
    if (!t->replica_self || rpi_train_place_is_alone(&t->place) || strstr(why, "; lost: rank "))
        return;
    snprintf(message, RPI_ERROR_BYTES, "%s: %s",
             rpi_train_place_text(&t->place, t->place.rank, place), why);
    int lost = rpi_train_place_lost(&t->place, why);
    if (lost >= 0)
        rpi_append(message, RPI_ERROR_BYTES, "; lost: %s",
                   rpi_train_place_text(&t->place, lost, place));
}

rp_status rpi_train(const rpi_train_options *options, rp_comm *comm,
                    const rpi_train_hooks *hooks, rpi_train_result *out_result) {
    static const rpi_train_hooks none;
    rpi_training r = {.options = options, .hooks = hooks ? hooks : &none};
    rp_status status = run_all(&r, comm);
    if (status == RP_OK) {
        RP_TRY(close_run(&r));
        *out_result = r.result;
        return RP_OK;
    }
    /* The others must not wait for this rank, and closing must not hide the reason. */
    rp_error error = *rp_last_error();
    char message[RPI_ERROR_BYTES];
    say_why(&r.trainer, error.message, message);
    rpi_grid_comms_abort(&r.trainer.comms, status, message);
    if (comm) rp_comm_abort(comm, status, message);
    if (r.trainer.comm && r.trainer.comm != comm)
        rp_comm_abort(r.trainer.comm, status, message);
    int64_t steps = r.diverged ? r.told_step : r.trainer.step;
    /* A rank that comes back must be told, however early this happens. */
    if (comm && options->returns && options->returns->rank == 0)
        r.readmission.requests.way = options->returns;
    (void)rpi_metrics_failure(r.metrics, steps, message); /* if the file can still be written */
    (void)close_run(&r);
    return rpi_fail(status, error.file, error.line, "%s", message);
}
