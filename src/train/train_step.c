/* One training step: deal, forward, backward with communication under it, update, account. */
#include "base/clock.h"
#include "base/status.h"
#include "train/divergence.h"
#include "train/trainer.h"

#include <math.h>
#include <string.h>

static rp_status on_gradient_final(void *context, int64_t first, int64_t count) {
    rpi_trainer *t = context;
    rpi_divergence_watch(t, first, count);
    return t->strategy->gradient_final(t->strategy_self, first, count);
}

static void on_step(void *context, const rpi_step_report *report) {
    rpi_trainer *t = context;
    rpi_timeline_add(t->timeline, RPI_LANE_COMPUTE, report->name, -1, report->start_ns,
                     report->end_ns);
    rpi_profile_kernel(t->profile, report);
    if (t->strategy->observe) t->strategy->observe(t->strategy_self);
}

static rp_status compile_step(rpi_trainer *t, int64_t step) {
    rpi_instance *instance = NULL;
    if (step >= t->total_steps) return RP_OK;
    int64_t all = rpi_source_count(&t->source, step);
    if (!t->place.works) return RP_OK;
    int64_t first, end;
    rpi_train_place_work(&t->place, all, &first, &end);
    int64_t count = end - first, rest = count % t->micro_batch;
    if (rest) RP_TRY(rpi_program_set_get(&t->programs, true, rest, &instance));
    if (count < t->micro_batch) return RP_OK;
    return rpi_program_set_get(&t->programs, true, t->micro_batch, &instance);
}

/* An epoch has batches of two sizes: the last one is short. Each may end in a short run. */
rp_status rpi_trainer_compile(rpi_trainer *t) {
    if (t->options->eval) RP_TRY(rpi_trainer_compile_evaluation(t));
    RP_TRY(compile_step(t, rpi_source_last_of_epoch(&t->source, t->step)));
    RP_TRY(compile_step(t, t->step + 1));
    return compile_step(t, t->step);
}

/* A rank that a short last batch leaves without samples still takes part in the sums. */
static rp_status run_nothing(rpi_trainer *t, double *out_loss) {
    int64_t count = rpi_weights_count(t->weights);
    memset(rpi_weights_gradients(t->weights), 0, (size_t)count * sizeof(float));
    *out_loss = 0;
    return on_gradient_final(t, 0, count);
}

/* The first of a run's samples in the batch of all replicas, whose share begins with `first` 0.
 */
static int64_t first_sample(const rpi_trainer *t, const rpi_source_batch *batch,
                            int64_t first) {
    int64_t share, end;
    rpi_train_place_work(&t->place, batch->global_count, &share, &end);
    return share + first;
}

static void count_flops(rpi_trainer *t, const rpi_instance *instance) {
    if (!t->profile) return;
    rpi_program_facts facts = rpi_program_get_facts(rpi_instance_program(instance));
    t->profile->flops += (double)(facts.forward_flops + facts.backward_flops);
}

/* Samples [first, first + count): gradients are added to those of the runs before, and are
 * final with the last. */
static rp_status run_part(rpi_trainer *t, const rpi_source_batch *batch, int64_t first,
                          int64_t count, double *in_out_loss) {
    rpi_instance *instance = NULL;
    RP_TRY(rpi_program_set_get(&t->programs, true, count, &instance));
    const void *inputs[RPI_NETWORK_INPUTS];
    rpi_trainer_inputs(t, batch, first, inputs);
    rpi_memories_inputs(&t->memories, first, inputs);
    bool is_last = first + count == batch->count, had_fault = t->fault.kind != RPI_FAULT_NONE;
    rpi_run_options run = {.inputs = inputs,
                           .seed = (uint64_t)t->options->seed,
                           .step = (uint64_t)t->step,
                           .first_sample = first_sample(t, batch, first),
                           .accumulate = first > 0,
                           .on_gradient_final = is_last ? on_gradient_final : NULL,
                           .on_step = t->timeline || t->profile ? on_step : NULL,
                           .context = t};
    RP_TRY(rpi_instance_run(instance, &run));
    rpi_tensor loss;
    RP_TRY(rpi_instance_result(instance, t->network.loss, &loss));
    double part = (double)*(const float *)loss.data;
    *in_out_loss += part;
    count_flops(t, instance);
    RP_TRY(rpi_memories_take(&t->memories, instance, first, count));
    return had_fault ? RP_OK : rpi_divergence_trace(t, instance, &run, part);
}

static rp_status run_batch(rpi_trainer *t, const rpi_source_batch *batch, double *out_loss) {
    *out_loss = 0;
    for (int64_t first = 0; first < batch->count; first += t->micro_batch) {
        int64_t left = batch->count - first;
        int64_t count = left < t->micro_batch ? left : t->micro_batch;
        RP_TRY(run_part(t, batch, first, count, out_loss));
    }
    rpi_memories_turn(&t->memories);
    return RP_OK;
}

/* The two labels of a picture share what its one had. */
static void mix(rpi_trainer *t, int64_t step, rpi_source_batch *batch) {
    if (t->mixup.alpha == 0) return;
    rpi_mixup_blend(&t->mixup, (uint64_t)t->options->seed, step, batch);
    t->mixed_scale = t->scale * (1 - t->mixup.share);
    t->scale *= t->mixup.share;
}

rp_status rpi_trainer_learn(rpi_trainer *t, int64_t step, rpi_source_batch *out_batch,
                            double *out_loss) {
    RP_TRY(rpi_source_deal(&t->source, step, out_batch));
    t->scale = 1.0f / (float)out_batch->global_labels;
    t->sample_scale = 1.0f / (float)out_batch->global_count;
    mix(t, step, out_batch);
    if (rpi_source_begins_epoch(&t->source, step)) rpi_memories_forget(&t->memories);
    return out_batch->count ? run_batch(t, out_batch, out_loss) : run_nothing(t, out_loss);
}

/* What this rank tells of the step leaves behind the last bucket. */
static rp_status report(rpi_trainer *t, const rpi_source_batch *batch, double loss,
                        int64_t start_ns) {
    double share = (double)batch->labels / (double)batch->global_labels;
    rpi_rank_report own = {.loss = t->place.counts ? loss : 0,
                           .share = t->place.counts ? share : 0,
                           .compute_s = rpi_seconds(rpi_now_ns() - start_ns),
                           .fault = t->fault};
    bool is_heard = t->wishes && !t->reports.is_alone;
    int asked = is_heard ? t->wishes(t->wishes_context) : 0;
    return rpi_step_reports_add(&t->reports, &own, asked, start_ns);
}

static rp_status finish(rpi_trainer *t, rpi_step_metrics *metrics) {
    int64_t exposed = 0;
    RP_TRY(rpi_losses_outlive(&t->losses, t->strategy->finish(t->strategy_self, &exposed)));
    int64_t start = rpi_now_ns();
    if (!t->losses.is_pending)
        RP_TRY(rpi_losses_outlive(&t->losses, rpi_step_reports_wait(&t->reports)));
    int64_t waited = rpi_now_ns() - start;
    metrics->exposed_s = rpi_seconds(exposed + (t->place.world > 1 ? waited : 0));
    return RP_OK;
}

/* What is learnt from in a step: not the samples of replicas that have died. */
static int64_t count_of(const rpi_trainer *t, const rpi_source_batch *batch) {
    return batch->global_count * t->source.sample_units * t->place.replicas / t->place.workers;
}

rp_status rpi_trainer_step(rpi_trainer *t, rpi_step_metrics *out_metrics) {
    rp_comm_stats before, after;
    rp_comm_get_stats(t->comm, &before);
    rpi_profile_begin(t->profile);
    int64_t start = rpi_now_ns();
    rpi_step_metrics metrics = {.step = t->step + 1,
                                .staleness_mean = NAN,
                                .staleness_max = NAN,
                                .missed_updates = NAN};
    metrics.lr = t->learning_rate = rpi_lr_at(t->schedule, &t->lr, t->step);
    rpi_optimizer_state_begin(&t->optimizer);
    t->strategy->begin(t->strategy_self, t->step);
    rpi_source_batch batch;
    RP_TRY(rpi_trainer_learn(t, t->step, &batch, &metrics.loss));
    metrics.count = count_of(t, &batch);
    metrics.unit = t->network.task->unit;
    RP_TRY(rpi_losses_outlive(&t->losses, report(t, &batch, metrics.loss, start)));
    RP_TRY(finish(t, &metrics));

    int64_t end = rpi_now_ns();
    rp_comm_get_stats(t->comm, &after);
    rpi_strategy_report outer = {NAN, NAN};
    if (t->strategy->report) t->strategy->report(t->strategy_self, &outer);
    metrics.outer_gradient_norm = outer.outer_gradient_norm;
    metrics.autocorrelation = outer.autocorrelation;
    metrics.gradient_norm = t->optimizer.norm;
    metrics.step_s = rpi_seconds(end - start);
    metrics.compute_s = metrics.step_s - metrics.exposed_s;
    metrics.comm_s = after.busy_s - before.busy_s;
    metrics.encode_s = after.encode_s - before.encode_s;
    metrics.decode_s = after.decode_s - before.decode_s;
    metrics.wire_bytes = after.wire_bytes_sent - before.wire_bytes_sent;
    rpi_timeline_add(t->timeline, RPI_LANE_STEP, "step", t->step + 1, start, end);
    if (t->place.world > 1)
        rpi_profile_add(t->profile, "wait", "communication, exposed",
                        (int64_t)(metrics.exposed_s * RPI_SECOND_NS));
    rpi_profile_end(t->profile, end - start);
    t->step++;
    rpi_step_reports_keep(&t->reports, &metrics);
    *out_metrics = metrics;
    return RP_OK;
}
