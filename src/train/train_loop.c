/* A run from its options to its result: the order of things. */
#include "base/append.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/median.h"
#include "base/memory.h"
#include "base/status.h"
#include "train/agree.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/run_folder.h"
#include "train/checkpoint/run_settings.h"
#include "train/huggingface/hf_weights.h"
#include "train/metrics.h"
#include "train/rejoin.h"
#include "train/replicas.h"
#include "train/returns.h"
#include "train/text_samples.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

typedef struct run {
    rpi_trainer trainer;
    const rpi_train_options *options;
    const rpi_train_hooks *hooks;
    rpi_metrics *metrics;      /* rank 0's */
    rpi_step_metrics *history; /* of the latest steps, a ring */
    double *scratch;           /* as many */
    int64_t told_step;         /* the latest of which all ranks' reports are there */
    bool diverged;             /* in that one */
    bool is_profiled;          /* with all others */
    rpi_span_end span_end;     /* of ranks with roles: of the latest span */
    int asked;                 /* what ranks are asked for, until they have done it */
    rpi_growth growth;         /* of ranks with roles: who comes back */
    bool admits;               /* somebody waits, and all know it */
    int64_t saved_step, evaluated_step, sampled_step;
    int64_t saved_ns; /* when, or when the first step began */
    rpi_train_result result;
} run;

static rp_status resume(run *r) {
    if (!r->options->resume) return RP_OK;
    char note[4096];
    RP_TRY(rpi_checkpoint_load(&r->trainer, r->options->resume, note, sizeof note));
    if (note[0] && r->hooks->note) r->hooks->note(r->hooks->context, note);
    return RP_OK;
}

static rp_status load_weights(run *r) {
    rpi_trainer *t = &r->trainer;
    const char *folder = r->options->weights;
    char note[4096];
    if (!folder || r->options->resume) return RP_OK;
    RP_TRY(rpi_hf_load(folder, &t->network, t->weights, true, note, sizeof note));
    if (note[0] && r->hooks->note) r->hooks->note(r->hooks->context, note);
    return RP_OK;
}

/* To nearest, one bit of q sends a bucket's extremes and leaves the rest: the residual never
 * settles. */
static void warn_of_one_bit(const run *r) {
    const rp_codec *codec = &r->trainer.codec.codec;
    char text[80];
    bool alone = r->trainer.world < 2 || codec->rounding == RP_STOCHASTIC;
    bool is_q1 = codec->bits == 1 && rp_codec_text(codec, text, sizeof text)[0] == 'q';
    if (!is_q1 || alone || !r->trainer.residual || !r->hooks->note) return;
    r->hooks->note(r->hooks->context,
                   "one bit to nearest with error feedback grows its residual "
                   "without end; q2 has no such trouble");
}

/* "--split by-label, of 10 labels: rank 0 has 2, rank 1 has 3, ..." */
static void tell_split(const run *r) {
    enum { RANKS = 16 };
    const rpi_split_parts *parts = r->trainer.source.parts;
    char line[1024] = "";
    if (!parts || parts->world == 1 || !r->hooks->note) return;
    rpi_append(line, sizeof line, "--split %s, of %d labels:", r->options->split,
               parts->classes);
    for (int rank = 0; rank < parts->world && rank < RANKS; rank++) {
        int has = 0;
        for (int c = 0; c < parts->classes; c++)
            has += parts->of_labels[(int64_t)rank * parts->classes + c] > 0;
        rpi_append(line, sizeof line, "%s rank %d has %d", rank ? "," : "", rank, has);
    }
    if (parts->world > RANKS) rpi_append(line, sizeof line, ", ...");
    r->hooks->note(r->hooks->context, line);
}

/* Nothing is written before every rank has come this far. */
static rp_status open_output(run *r) {
    rpi_trainer *t = &r->trainer;
    RP_TRY(rp_barrier(t->comm));
    RP_TRY(rpi_run_folder_make(r->options, t->rank));
    if (t->rank == 0) RP_TRY(rpi_run_settings_write(r->options, t->world));
    if (t->rank == 0 && r->options->out)
        RP_TRY(rpi_metrics_open(r->options->out, rpi_run_folder_continues(r->options),
                                &r->metrics));
    return rpi_metrics_header(r->metrics, t);
}

static bool saves(const rpi_train_options *o) {
    return o->checkpoint && o->out;
}

static int asked_from_outside(const run *r) {
    return r->hooks->asked ? r->hooks->asked(r->hooks->context) : 0;
}

/* The clock is rank 0's: on others it may say something else. */
static int wishes(void *context) {
    run *r = context;
    double every_s = r->options->checkpoint_time_s;
    bool due = every_s > 0 && rpi_seconds(rpi_now_ns() - r->saved_ns) >= every_s;
    int asked = asked_from_outside(r);
    if (r->trainer.rank > 0) return asked;
    if (due && saves(r->options)) asked |= RPI_ASKED_SAVE;
    return rpi_return_look(&r->growth.requests) ? asked | RPI_ASKED_ADMIT : asked;
}

static rp_status make_history(run *r) {
    const rpi_trainer *t = &r->trainer;
    int64_t left = t->total_steps > t->step ? t->total_steps - t->step : 0;
    size_t kept = left < RPI_MEDIAN_STEPS ? (size_t)left : RPI_MEDIAN_STEPS;
    RP_TRY(rpi_alloc_array(kept, sizeof *r->history, "metrics", &r->history));
    return rpi_alloc_array(kept, sizeof *r->scratch, "metrics", &r->scratch);
}

static void listen_to_wishes(run *r) {
    rpi_trainer *t = &r->trainer;
    t->wishes = wishes;
    t->wishes_context = r;
    if (r->options->profile) t->profile = &r->result.profile;
}

static rp_status prepare(run *r, rp_comm *comm) {
    rpi_trainer *t = &r->trainer;
    RP_TRY(rpi_trainer_open(t, r->options, comm));
    listen_to_wishes(r);
    RP_TRY(load_weights(r));
    RP_TRY(resume(r));
    RP_TRY(rpi_train_agree(t, t->comm));
    RP_TRY(rpi_replicas_check(t));
    if (t->rank == 0) RP_TRY(rpi_run_folder_check(r->options));
    RP_TRY(rpi_text_sample_check(t));
    if (t->step < t->total_steps) RP_TRY(rpi_trainer_compile(t));
    RP_TRY(open_output(r));
    warn_of_one_bit(r);
    tell_split(r);
    RP_TRY(rpi_growth_open(t, &r->growth));
    RP_TRY(make_history(r));
    r->saved_step = r->evaluated_step = r->sampled_step = -1;
    r->result.first_step = t->step + 1;
    if (r->hooks->started)
        r->hooks->started(
            r->hooks->context, t->step + 1, t->total_steps,
            rpi_parameters_total(t->network.parameters, t->network.parameter_count));
    RP_TRY(rp_barrier(comm)); /* times begin together */
    r->saved_ns = rpi_now_ns();
    rpi_timeline_start(t->timeline);
    return RP_OK;
}

static rp_status evaluate(run *r) {
    rpi_trainer *t = &r->trainer;
    rpi_evaluation evaluation;
    RP_TRY(rpi_divergence_check(t, NULL));
    RP_TRY(rpi_trainer_evaluate(t, &evaluation));
    RP_TRY(rpi_metrics_evaluation(r->metrics, t->step, &evaluation));
    if (r->hooks->evaluated) r->hooks->evaluated(r->hooks->context, t->step, &evaluation);
    r->result.test = evaluation;
    r->result.evaluated = true;
    r->evaluated_step = t->step;
    return RP_OK;
}

static rp_status save(run *r) {
    rpi_trainer *t = &r->trainer;
    RP_TRY(rpi_replicas_check(t));
    RP_TRY(rpi_checkpoint_save(t, r->options->out));
    r->saved_step = t->step;
    r->saved_ns = rpi_now_ns();
    (void)asked_from_outside(r); /* to save what has just been saved */
    char path[1024];
    if (r->hooks->saved)
        r->hooks->saved(r->hooks->context, t->step,
                        rpi_checkpoint_path(r->options->out, path, sizeof path));
    return RP_OK;
}

/* The others go on meanwhile, as far as they come without rank 0. */
static rp_status write_sample(run *r) {
    rpi_trainer *t = &r->trainer;
    rpi_text text = {0};
    r->sampled_step = t->step;
    if (t->rank != 0) return RP_OK;
    RP_TRY(rpi_text_sample_write(t, &text));
    rp_status status = rpi_metrics_sample(r->metrics, t->step, r->options->prompt, text.at);
    if (status == RP_OK && r->hooks->sampled)
        r->hooks->sampled(r->hooks->context, t->step, text.at);
    rpi_text_free(&text);
    return status;
}

static bool due(int64_t step, int64_t every) {
    return every > 0 && step % every == 0;
}

/* Bits of tensors, in words. */
static void tell_choice(run *r) {
    rpi_trainer *t = &r->trainer;
    char line[RPI_BIT_CHOICE_TEXT + 64];
    if (!t->choice[0]) return;
    snprintf(line, sizeof line, "codec auto, from step %lld on: %s", (long long)t->step + 1,
             t->choice);
    t->choice[0] = '\0';
    if (r->hooks->note) r->hooks->note(r->hooks->context, line);
}

static void tell_note(run *r) {
    char *note = r->trainer.note;
    if (note[0] && r->hooks->note) r->hooks->note(r->hooks->context, note);
    note[0] = '\0';
}

static rp_status take_step(void *context, const rpi_step_metrics *metrics) {
    run *r = context;
    RP_TRY(rpi_metrics_step(r->metrics, metrics));
    r->history[r->result.steps++ % RPI_MEDIAN_STEPS] = *metrics;
    r->result.seconds += metrics->step_s;
    r->result.last_loss = metrics->loss;
    r->told_step = metrics->step;
    if (r->hooks->stepped) r->hooks->stepped(r->hooks->context, metrics);
    return RP_OK;
}

/* What ranks told each other is the same on all, so all stop together. */
static rp_status tell_step(run *r, const rpi_told_step *told) {
    const rpi_step_metrics *metrics = &told->metrics;
    RP_TRY(take_step(r, metrics));
    rp_status status = rpi_divergence_report(&r->trainer, told->faults, told->stride,
                                             metrics->step, metrics->step - 1);
    if (status != RP_OK) r->diverged = true;
    return status;
}

static rp_status tell_steps(run *r) {
    rpi_told_step told;
    while (rpi_step_reports_take(&r->trainer.reports, &told)) RP_TRY(tell_step(r, &told));
    return RP_OK;
}

/* Does something follow that needs all steps before it to be well, and told? */
static bool is_milestone(const run *r) {
    const rpi_train_options *o = r->options;
    int64_t step = r->trainer.step;
    return r->asked || step == r->trainer.total_steps || due(step, o->check_replicas) ||
           (o->eval && due(step, o->eval_every)) || due(step, o->checkpoint_every) ||
           due(step, o->sample_every);
}

/* What all ranks are asked for, as far as they all know it after this step. */
static rp_status tell(run *r) {
    rpi_step_reports *reports = &r->trainer.reports;
    RP_TRY(tell_steps(r));
    r->asked |= rpi_step_reports_asked(reports);
    if (is_milestone(r)) {
        RP_TRY(rpi_step_reports_flush(reports));
        RP_TRY(tell_steps(r));
        r->asked |= rpi_step_reports_asked(reports);
    }
    tell_choice(r);
    tell_note(r);
    return RP_OK;
}

/* What is due after the steps that are done, and what ranks are asked for. What all have done
 * behind this step already, before a rank died, is not done again. */
static rp_status pass_milestone(run *r) {
    const rpi_train_options *o = r->options;
    int64_t step = r->trainer.step;
    if (due(step, o->check_replicas)) RP_TRY(rpi_replicas_check(&r->trainer));
    r->result.stopped = (r->asked & RPI_ASKED_STOP) != 0; /* somebody waits for the end */
    if (o->eval && due(step, o->eval_every) && r->evaluated_step != step && !r->result.stopped)
        RP_TRY(evaluate(r));
    if (due(step, o->sample_every) && r->sampled_step != step && !r->result.stopped)
        RP_TRY(write_sample(r));
    if (saves(o) && r->saved_step != step && (r->asked || due(step, o->checkpoint_every)))
        RP_TRY(save(r));
    r->asked = 0;
    return RP_OK;
}

/* ---- ranks that die ---- */

static rp_status take_alone(run *r) {
    size_t count = 0;
    const rpi_step_metrics *alone = rpi_step_reports_alone(&r->trainer.reports, &count);
    for (size_t i = 0; i < count; i++) RP_TRY(take_step(r, &alone[i]));
    return RP_OK;
}

static void note_loss(run *r, const rpi_loss *loss, bool first) {
    char *lost = r->result.lost;
    for (int i = 0; i < loss->count; i++)
        rpi_append(lost, sizeof r->result.lost, "%srank %d after step %lld", *lost ? ", " : "",
                   loss->ranks[i], (long long)loss->step);
    if (r->hooks->lost) r->hooks->lost(r->hooks->context, loss, first);
}

/* What rank 0 has written goes on here, from the step behind its last. */
static rp_status take_over_output(run *r) {
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

static rpi_standing standing_of(const run *r) {
    return (rpi_standing){.step = (double)r->trainer.step,
                          .evaluated = (double)r->evaluated_step,
                          .saved = (double)r->saved_step,
                          .good = (double)r->trainer.good_step,
                          .asked = r->asked};
}

/* What all have done. */
static void take_standing(run *r, const rpi_standing *standing) {
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

static rp_status rejoin(run *r, rpi_loss *out_loss) {
    rpi_trainer *t = &r->trainer;
    int asked = 0;
    RP_TRY(tell_steps(r));
    if (!t->reports.is_alone) RP_TRY(rpi_step_reports_leave(&t->reports, &asked));
    r->asked |= asked | (r->result.stopped ? RPI_ASKED_STOP : 0);
    rpi_standing standing = standing_of(r);
    RP_TRY(rpi_trainer_rejoin(t, &standing, out_loss));
    take_standing(r, &standing);
    return RP_OK;
}

/* Those that are left go on together: behind the step which all have done now. */
static rp_status go_on(run *r) {
    rpi_trainer *t = &r->trainer;
    rpi_loss loss;
    int rank = t->rank;
    RP_TRY(rejoin(r, &loss));
    bool first = t->rank == 0 && rank > 0;
    note_loss(r, &loss, first);
    RP_TRY(take_alone(r));
    rpi_step_reports_rejoin(&t->reports, t->comm);
    if (first) RP_TRY(take_over_output(r));
    if (t->rank == 0 && r->options->out) rpi_checkpoint_take_over(t, r->options->out);
    RP_TRY(rpi_metrics_loss(r->metrics, t, &loss));
    RP_TRY(tell(r));
    return pass_milestone(r);
}

/* Of a step, or of what is due behind one: RP_OK where those that are left have gone on. */
static rp_status outlive(run *r, rp_status status) {
    for (;;) {
        RP_TRY(rpi_trainer_outlive(&r->trainer, status));
        if (!r->trainer.losses.is_pending) return RP_OK;
        status = go_on(r);
    }
}

static rp_status train_step(run *r) {
    rpi_step_metrics own;
    RP_TRY(rpi_trainer_step(&r->trainer, &own));
    if (r->trainer.losses.is_pending) return RP_OK;
    RP_TRY(tell(r));
    return pass_milestone(r);
}

static rp_status step(run *r) {
    return outlive(r, train_step(r));
}

/* The next step behind which something is due, in which all ranks take part. */
static int64_t next_milestone(const run *r) {
    const rpi_train_options *o = r->options;
    int64_t next = r->trainer.total_steps, step = r->trainer.step;
    const int64_t every[] = {o->check_replicas, o->eval ? o->eval_every : 0, o->sample_every,
                             saves(o) ? o->checkpoint_every : 0};
    for (size_t i = 0; i < sizeof every / sizeof every[0]; i++) {
        int64_t at = every[i] > 0 ? (step / every[i] + 1) * every[i] : next;
        if (at < next) next = at;
    }
    return next;
}

/* ---- ranks with roles ---- */

static rp_status compare_standings(run *r) {
    rpi_standing standing = standing_of(r);
    RP_TRY(rpi_trainer_compare(&r->trainer, &standing));
    take_standing(r, &standing);
    if (r->trainer.rank == 0 && r->options->out)
        rpi_checkpoint_take_over(&r->trainer, r->options->out);
    return RP_OK;
}

/* Again, as far as it is left to do, as long as ranks die meanwhile that the run outlives. */
static rp_status do_together(run *r, rp_status (*what)(run *r)) {
    bool again = false;
    do {
        rp_status status = again ? compare_standings(r) : RP_OK;
        if (status == RP_OK) status = what(r);
        RP_TRY(rpi_trainer_confirm(&r->trainer, status, &again));
    } while (again);
    return RP_OK;
}

static rp_status tell_lost(run *r) {
    rpi_loss loss;
    if (!rpi_trainer_find_lost(&r->trainer, &loss)) return RP_OK;
    note_loss(r, &loss, false);
    return rpi_metrics_loss(r->metrics, &r->trainer, &loss);
}

static rp_status close_span(run *r) {
    RP_TRY(rpi_trainer_close_span(&r->trainer, &r->span_end));
    RP_TRY(tell_lost(r));
    r->asked |= r->span_end.asked;
    r->admits = (r->asked & RPI_ASKED_ADMIT) != 0;
    r->asked &= ~RPI_ASKED_ADMIT;
    return pass_milestone(r);
}

/* ---- ranks that come back (returns.h) ---- */

static rp_status try_growth(run *r) {
    rpi_run_state state = {.standing = standing_of(r), .steps = (double)r->result.steps};
    state.standing.step = (double)r->trainer.step;
    RP_TRY(tell_lost(r));
    return rpi_growth_try(&r->trainer, &state, &r->growth);
}

static void note_failed_return(const run *r) {
    char line[400];
    if (!r->growth.why[0] || !r->hooks->note) return;
    snprintf(line, sizeof line, "nobody has come back: %s", r->growth.why);
    r->hooks->note(r->hooks->context, line);
}

static rp_status admit(run *r) {
    rpi_back back;
    char *text = r->result.back;
    RP_TRY(do_together(r, try_growth));
    if (!r->growth.is_ready) {
        note_failed_return(r);
        return RP_OK;
    }
    rpi_growth_take(&r->trainer, &r->growth, &back);
    for (int i = 0; i < back.count; i++)
        rpi_append(text, sizeof r->result.back, "%srank %d behind step %lld", *text ? ", " : "",
                   back.ranks[i], (long long)back.step);
    if (r->hooks->note) r->hooks->note(r->hooks->context, back.line);
    return rpi_metrics_return(r->metrics, &r->trainer, &back);
}

/* This rank is one that does: it has all that it needs before the others wait for it. */
static rp_status come_back(run *r) {
    rpi_trainer *t = &r->trainer;
    const rpi_train_returns *way = r->options->returns;
    rpi_run_state state;
    RP_TRY(rpi_trainer_open_apart(t, r->options, way->rank, way->world));
    listen_to_wishes(r);
    RP_TRY(rpi_trainer_compile(t));
    RP_TRY(rpi_growth_open(t, &r->growth));
    RP_TRY(make_history(r));
    RP_TRY(rpi_return(t, r->hooks, &r->growth, &state, &r->result.is_late));
    RP_TRY(rpi_run_folder_make(r->options, t->rank));
    take_standing(r, &state.standing);
    r->result.steps = (int64_t)state.steps;
    r->result.first_step = t->step + 1 - r->result.steps;
    r->sampled_step = -1;
    r->saved_ns = rpi_now_ns();
    rpi_log(RP_LOG_INFO, "rank %d, started again for time %d, goes on behind step %lld",
            way->rank, way->generation, (long long)t->step);
    rpi_timeline_start(t->timeline);
    return RP_OK;
}

/* Steps are told where they are counted, on rank 0. */
static rp_status span(run *r) {
    rpi_trainer *t = &r->trainer;
    int64_t before = t->step;
    RP_TRY(rpi_trainer_span(t, next_milestone(r), take_step, r, &r->span_end));
    tell_note(r);
    RP_TRY(do_together(r, close_span));
    if (t->rank > 0) r->result.steps += t->step - before;
    bool goes_on = t->step < t->total_steps && !r->result.stopped;
    return r->admits && goes_on ? admit(r) : RP_OK;
}

static double rate(const rpi_step_metrics *m) {
    return (double)m->count / m->step_s;
}

static double step_s(const rpi_step_metrics *m) {
    return m->step_s;
}

static double comm_s(const rpi_step_metrics *m) {
    return m->comm_s;
}

static double exposed_s(const rpi_step_metrics *m) {
    return m->exposed_s;
}

static double wire_bytes(const rpi_step_metrics *m) {
    return (double)m->wire_bytes;
}

static double median_of(run *r, double (*value)(const rpi_step_metrics *)) {
    int steps = r->result.steps < RPI_MEDIAN_STEPS ? (int)r->result.steps : RPI_MEDIAN_STEPS;
    for (int i = 0; i < steps; i++) r->scratch[i] = value(&r->history[i]);
    return steps ? rpi_median(r->scratch, steps) : NAN;
}

static double mean_of(const run *r, double (*value)(const rpi_step_metrics *)) {
    int steps = r->result.steps < RPI_MEDIAN_STEPS ? (int)r->result.steps : RPI_MEDIAN_STEPS;
    double sum = 0;
    for (int i = 0; i < steps; i++) sum += value(&r->history[i]);
    return steps ? sum / steps : NAN;
}

/* All ranks at once, as they share the machine while they train. */
static rp_status finish_profile(run *r) {
    rpi_trainer *t = &r->trainer;
    rpi_profile *profile = &r->result.profile;
    if (!r->options->profile || r->is_profiled) return RP_OK;
    t->profile = NULL;
    rpi_profile_sort(profile);
    struct rusage use;
    if (getrusage(RUSAGE_SELF, &use) == 0)
        profile->memory_bytes = 1024.0 * (double)use.ru_maxrss;
    RP_TRY(rp_barrier(t->comm));
    r->is_profiled = true;
    return rpi_profile_matrix_rate(rpi_session_backend(t->programs.session),
                                   (int)r->options->threads, &profile->matrix_flop_s);
}

static void summarise(run *r) {
    r->result.unit = r->trainer.network.task->unit;
    r->result.rank = r->trainer.rank;
    r->result.ranks = r->trainer.world;
    r->result.rate_median = median_of(r, rate);
    r->result.step_s_median = median_of(r, step_s);
    r->result.comm_s_median = median_of(r, comm_s);
    r->result.exposed_s_median = median_of(r, exposed_s);
    r->result.wire_bytes_median = median_of(r, wire_bytes);
    r->result.exposed_s_mean = mean_of(r, exposed_s);
    r->result.wire_bytes_mean = mean_of(r, wire_bytes);
}

static rp_status write_trace(const run *r) {
    const rpi_trainer *t = &r->trainer;
    char path[1024];
    if (!t->timeline || !r->options->out) return RP_OK;
    snprintf(path, sizeof path, "%s/trace.json", r->options->out);
    return rpi_timeline_write(t->timeline, t->comm, path);
}

/* All that ranks do together at the end; again, as far as it is left to do, when one dies
 * meanwhile. Nobody leaves before all of it is done: who leaves is as good as dead to those who
 * still go on. */
static rp_status close_together(run *r) {
    const rpi_train_options *o = r->options;
    rpi_trainer *t = &r->trainer;
    RP_TRY(finish_profile(r));
    RP_TRY(rpi_divergence_check(t, NULL));
    bool new_steps = r->result.steps > 0 || !rpi_run_folder_continues(o);
    if (saves(o) && r->saved_step != t->step && new_steps) RP_TRY(save(r));
    if (o->eval && r->evaluated_step != t->step && !r->result.stopped) RP_TRY(evaluate(r));
    RP_TRY(write_trace(r));
    return t->losses.goes_on ? rp_barrier(t->comm) : RP_OK;
}

static rp_status close_roles(run *r) {
    RP_TRY(tell_lost(r));
    return close_together(r);
}

static rp_status close_all_alike(run *r) {
    rp_status status = close_together(r);
    while (status != RP_OK) {
        RP_TRY(outlive(r, status));
        status = close_together(r);
    }
    return RP_OK;
}

/* A rank that came back too late, or was told to end while it waited, has done nothing. */
static bool is_idle_end(run *r, rp_status status) {
    if (status != RP_CANCELLED || r->trainer.comm) return false;
    r->result.stopped = !r->result.is_late;
    return true;
}

static rp_status run_all(run *r, rp_comm *comm) {
    rp_status status = comm ? prepare(r, comm) : come_back(r);
    if (!comm && is_idle_end(r, status)) return RP_OK;
    RP_TRY(status);
    bool has_roles = r->trainer.strategy->run != NULL;
    while (r->trainer.step < r->trainer.total_steps && !r->result.stopped)
        RP_TRY(has_roles ? span(r) : step(r));
    RP_TRY(has_roles ? do_together(r, close_roles) : close_all_alike(r));
    summarise(r);
    return rpi_metrics_closing(r->metrics, &r->result);
}

static void close_run(run *r) {
    if (r->trainer.rank == 0) rpi_return_close(&r->growth.requests);
    rpi_trainer_close(&r->trainer);
    rpi_growth_close(&r->growth);
    rpi_metrics_close(r->metrics);
    rpi_free(r->history);
    rpi_free(r->scratch);
}

rp_status rpi_train(const rpi_train_options *options, rp_comm *comm,
                    const rpi_train_hooks *hooks, rpi_train_result *out_result) {
    static const rpi_train_hooks none;
    run r = {.options = options, .hooks = hooks ? hooks : &none};
    rp_status status = run_all(&r, comm);
    if (status == RP_OK) {
        close_run(&r);
        *out_result = r.result;
        return RP_OK;
    }
    /* The others must not wait for this rank, and closing must not hide why. */
    rp_error error = *rp_last_error();
    char message[RPI_ERROR_BYTES];
    snprintf(message, sizeof message, "%s", error.message);
    if (comm) rp_comm_abort(comm, status, message);
    if (r.trainer.comm && r.trainer.comm != comm)
        rp_comm_abort(r.trainer.comm, status, message);
    int64_t steps = r.diverged ? r.told_step : r.trainer.step;
    (void)rpi_metrics_failure(r.metrics, steps, message); /* if it still can be */
    close_run(&r);
    return rpi_fail(status, error.file, error.line, "%s", message);
}
