/* A span of steps of a strategy whose ranks have roles: what workers and servers do in it, and
 * what all ranks agree on after it. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "train/divergence.h"
#include "train/trainer.h"

#include <math.h>
#include <string.h>

typedef struct span_run {
    rpi_trainer *trainer;
    rp_status (*tell)(void *context, const rpi_step_metrics *metrics);
    void *context;
    int64_t told_ns; /* when the last step was reported, or the span began */
    int64_t told_step;
    int asked;
} span_run;

static int wishes_of(const rpi_trainer *t) {
    return t->wishes ? t->wishes(t->wishes_context) : 0;
}

/* On a worker. */
static rp_status learn(void *context, int64_t step, rpi_strategy_part *out_part) {
    span_run *r = context;
    rpi_trainer *t = r->trainer;
    rpi_source_batch batch;
    int64_t start_ns = rpi_now_ns();
    double loss = 0;
    t->step = step; /* random draws depend on it */
    rpi_profile_begin(t->profile);
    RP_TRY(rpi_trainer_learn(t, step, &batch, &loss));
    rpi_profile_end(t->profile, rpi_now_ns() - start_ns);
    *out_part = (rpi_strategy_part){.loss = loss,
                                    .share = (double)batch.labels / (double)batch.global_labels,
                                    .count = (double)(batch.count * t->source.sample_units),
                                    .compute_s = rpi_seconds(rpi_now_ns() - start_ns),
                                    .asked = wishes_of(t),
                                    .has_fault = t->fault.kind != RPI_FAULT_NONE};
    return RP_OK;
}

static void update(void *context, const rpi_strategy_update *u) {
    const span_run *r = context;
    rpi_trainer_update_apart(r->trainer, u);
}

/* Steps that are reported together share the time that they took equally. */
static rp_status tell_each(span_run *r, const rpi_strategy_step *step,
                           rpi_step_metrics *metrics) {
    const rpi_trainer *t = r->trainer;
    double autocorrelation = metrics->autocorrelation;
    for (int64_t s = step->step - step->steps + 1; s <= step->step; s++) {
        metrics->step = s;
        metrics->lr = rpi_lr_at(t->schedule, &t->lr, s - 1);
        metrics->autocorrelation = s == step->step ? autocorrelation : NAN;
        RP_TRY(r->tell(r->context, metrics));
    }
    return RP_OK;
}

/* On rank 0. If it learns, too, its requests come with its own pushes. */
static rp_status stepped(void *context, const rpi_strategy_step *step, bool *out_stops) {
    span_run *r = context;
    rpi_trainer *t = r->trainer;
    int64_t now_ns = rpi_now_ns();
    double steps = (double)step->steps;
    uint64_t whole = (uint64_t)step->steps;
    rpi_step_metrics metrics = {.count = (int64_t)(step->count / steps + .5),
                                .unit = t->network.task->unit,
                                .loss = step->loss,
                                .gradient_norm = NAN,
                                .outer_gradient_norm = NAN,
                                .autocorrelation = step->autocorrelation,
                                .staleness_mean = step->staleness_mean,
                                .staleness_max = step->staleness_max,
                                .missed_updates = step->missed_updates,
                                .step_s = rpi_seconds(now_ns - r->told_ns) / steps,
                                .compute_s = step->compute_s / steps,
                                .comm_s = step->exposed_s / steps,
                                .exposed_s = step->exposed_s / steps,
                                .wire_bytes = step->bytes_sent / whole,
                                .wire_bytes_received = step->bytes_received / whole};
    r->told_ns = now_ns;
    r->told_step = step->step;
    r->asked |= step->asked;
    if (!t->place.works) r->asked |= wishes_of(t);
    *out_stops = r->asked || step->has_fault;
    return tell_each(r, step, &metrics);
}

/* ---- behind it ---- */

/* Workers have the running statistics: servers take their mean, or keep their own if no worker
 * is left. */
static rp_status share_statistics(rpi_trainer *t) {
    float *states = rpi_weights_states(t->weights), *sum = NULL;
    size_t count = (size_t)rpi_weights_states_count(t->weights);
    if (!t->place.servers || !count || t->place.world <= t->place.servers) return RP_OK;
    RP_TRY(rpi_alloc_array(count, sizeof *sum, "running statistics", &sum));
    if (t->place.works) memcpy(sum, states, count * sizeof *sum);
    rp_segment segment = {.data = sum, .count = count, .dtype = RP_F32};
    rp_status status = rp_all_reduce(t->comm, &segment, 1, NULL);
    for (size_t i = 0; i < count && !t->place.works && status == RP_OK; i++)
        states[i] = sum[i] / (float)(t->place.world - t->place.servers);
    rpi_free(sum);
    return status;
}

/* One rank's numbers at the end of a span; doubles, as ranks send them to each other. */
typedef struct closing {
    rpi_step_fault fault;
    double step, asked;
} closing;
enum { CLOSING = sizeof(closing) / sizeof(double) };

static rp_status agree(rpi_trainer *t, const closing *own, closing *all) {
    RP_TRY(rp_all_gather(t->comm, own, all, CLOSING, RP_F64, NULL, NULL));
    t->step = (int64_t)all[0].step;
    return rpi_divergence_report(t, &all[0].fault.kind, CLOSING, t->step, t->step - 1);
}

rp_status rpi_trainer_close_span(rpi_trainer *t, rpi_span_end *in_out_end) {
    closing own = {
        .fault = t->fault, .step = (double)in_out_end->step, .asked = in_out_end->asked};
    closing *all = NULL;
    RP_TRY(rpi_alloc_array((size_t)t->place.world, sizeof *all, "reports", &all));
    rp_status status = agree(t, &own, all);
    if (status == RP_OK) *in_out_end = (rpi_span_end){t->step, (int)all[0].asked};
    rpi_free(all);
    return status == RP_OK ? share_statistics(t) : status;
}

static void count_ranks(rpi_trainer *t) {
    rpi_train_place_move(&t->place, rp_comm_rank(t->comm), rp_comm_world(t->comm));
}

rp_status rpi_trainer_confirm(rpi_trainer *t, rp_status status, bool *out_again) {
    *out_again = false;
    if (!t->strategy->confirm) return status;
    RP_TRY(t->strategy->confirm(t->strategy_self, status, out_again, &t->comm));
    count_ranks(t);
    return RP_OK;
}

rp_status rpi_trainer_span(rpi_trainer *t, int64_t last_step,
                           rp_status (*tell)(void *context, const rpi_step_metrics *metrics),
                           void *context, rpi_span_end *out_end) {
    span_run r = {.trainer = t,
                  .tell = tell,
                  .context = context,
                  .told_ns = rpi_now_ns(),
                  .told_step = t->step};
    rpi_strategy_span span = {.first_step = t->step,
                              .last_step = last_step,
                              .context = &r,
                              .learn = learn,
                              .update = update,
                              .stepped = stepped};
    RP_TRY(t->strategy->run(t->strategy_self, &span, &t->comm));
    count_ranks(t);
    *out_end = (rpi_span_end){r.told_step, r.asked};
    return RP_OK;
}
