/* One training step: it takes a batch, runs forward and backward with communication meanwhile,
 * updates parameters, and counts. */
#include "base/clock.h"
#include "base/status.h"
#include "train/divergence.h"
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static rp_status on_gradient_final(void *context, int64_t first, int64_t count) {
    rpi_trainer *t = context;
    RP_TRY(rpi_trainer_sum_tensors(t, first, count));
    rpi_divergence_watch(t, first, count);
    return t->strategy->gradient_final(t->strategy_self, first, count);
}

static rp_status on_parameter(void *context, int index, rpi_parameter_event event) {
    rpi_trainer *t = context;
    int64_t start_ns = rpi_now_ns(), spans = t->picture.count;
    RP_TRY(t->strategy->use(t->strategy_self, index, event));
    int64_t end_ns = rpi_now_ns();
    t->waited_ns += end_ns - start_ns;
    if (t->picture.count == spans) /* what this pass waited for is not there yet */
        rpi_step_picture_add(&t->picture, RPI_PICTURE_REPLICAS, 0, -1, start_ns, end_ns);
    return RP_OK;
}

/* Is it the second half of a node in which ranks that share a layer, or sequences, communicate?
 * It is a wait, which is counted already. */
static bool is_meeting(const rpi_trainer *t, const rpi_step_report *report) {
    return (t->tensor_nodes || t->context_nodes) && strcmp(report->what, "finish") == 0;
}

static rp_status on_pass(void *context, const rpi_program *program, rpi_pass pass) {
    rpi_trainer *t = context;
    return t->strategy->pass(t->strategy_self, program, pass);
}

static void on_step(void *context, const rpi_step_report *report) {
    rpi_trainer *t = context;
    bool waits = is_meeting(t, report);
    rpi_timeline_add(t->timeline, waits ? RPI_LANE_EXPOSED : RPI_LANE_COMPUTE, report->name, -1,
                     report->start_ns, report->end_ns);
    if (!waits) rpi_profile_kernel(t->profile, report);
    if (t->strategy->observe) t->strategy->observe(t->strategy_self);
}

static rp_status compile_step(rpi_trainer *t, int64_t step) {
    int64_t first, end;
    if (step >= t->total_steps || !t->place.works) return RP_OK;
    rpi_train_place_work(&t->place, rpi_source_count(&t->source, step), &first, &end);
    return t->replica->compile(t->replica_self, true, end - first);
}

/* An epoch has batches of two sizes, as the last one is short. Each may end in a short run. */
rp_status rpi_trainer_compile(rpi_trainer *t) {
    if (t->options->eval) RP_TRY(rpi_trainer_compile_evaluation(t));
    RP_TRY(compile_step(t, rpi_source_last_of_epoch(&t->source, t->step)));
    RP_TRY(compile_step(t, t->step + 1));
    return compile_step(t, t->step);
}

static rp_status on_run(void *context, const rpi_replica_run *run) {
    rpi_trainer *t = context;
    if (t->profile) {
        rpi_program_facts facts = rpi_program_get_facts(rpi_instance_program(run->instance));
        t->profile->flops += (double)(facts.forward_flops + facts.backward_flops);
    }
    if (t->fault_is_traced) return RP_OK;
    RP_TRY(rpi_divergence_trace(t, run->instance, run->options, run->loss));
    /* Ranks that trace together trace on all of them or on none. */
    t->fault_is_traced =
        rpi_trainer_is_split(t) ? !isfinite(run->loss) : t->fault.kind != RPI_FAULT_NONE;
    return RP_OK;
}

/* A wait for another stage, which the step's trace shows as exposed. */
static void waited(void *context, const char *what, int64_t micro_batch, int64_t start_ns,
                   int64_t end_ns) {
    rpi_trainer *t = context;
    char name[40];
    t->waited_ns += end_ns - start_ns;
    rpi_step_picture_add(&t->picture, RPI_PICTURE_STAGES, 0, micro_batch, start_ns, end_ns);
    snprintf(name, sizeof name, "wait for %s", what);
    rpi_timeline_add(t->timeline, RPI_LANE_EXPOSED, name, micro_batch, start_ns, end_ns);
}

static void passed(void *context, const rpi_pipeline_pass *pass, int64_t start_ns,
                   int64_t end_ns) {
    rpi_trainer *t = context;
    rpi_step_picture_add(&t->picture, (rpi_picture_kind)pass->kind, pass->chunk,
                         pass->micro_batch, start_ns, end_ns);
}

static rp_status open_part(rpi_trainer *t) {
    const rpi_model_stage *stage = rpi_trainer_is_staged(t) ? &t->stage : NULL;
    if (!rpi_trainer_has_part(t)) return RP_OK;
    t->links = (rpi_stage_links){
        .stages = t->comms.stages, .codec = &t->activations, .waited = waited, .context = t};
    return rpi_partial_sums_open(stage, &t->network, t->weights, &t->optimizer, t->comms.stages,
                                 &t->sums);
}

rp_status rpi_trainer_open_replica(rpi_trainer *t) {
    RP_TRY(open_part(t));
    const rpi_replica_setup setup = {.network = &t->network,
                                     .weights = t->weights,
                                     .programs = &t->programs,
                                     .mixup = &t->mixup,
                                     .memories = &t->memories,
                                     .micro_batch = t->micro_batch,
                                     .stage = rpi_trainer_is_staged(t) ? &t->stage : NULL,
                                     .links = &t->links,
                                     .gradient_final = on_gradient_final,
                                     .on_pass = t->strategy->pass ? on_pass : NULL,
                                     .on_parameter = t->strategy->use ? on_parameter : NULL,
                                     .on_run = on_run,
                                     .passed = t->picture.spans ? passed : NULL,
                                     .context = t};
    t->replica = rpi_trainer_is_staged(t) ? &rpi_replica_pipeline : &rpi_replica_alone;
    return t->replica->open(&setup, &t->replica_self);
}

/* The two labels of a blended picture share the weight of its label. */
static void mix(rpi_trainer *t, int64_t step, rpi_source_batch *batch,
                rpi_loss_scales *scales) {
    if (t->mixup.alpha == 0) return;
    rpi_mixup_blend(&t->mixup, (uint64_t)t->options->seed, step, batch);
    scales->mixed = scales->label * (1 - t->mixup.share);
    scales->label *= t->mixup.share;
}

/* The sum over all ranks is then a mean: of those that share a sequence one counts the loss of
 * whole samples. */
static rpi_loss_scales scales_of(const rpi_trainer *t, const rpi_source_batch *batch) {
    rpi_loss_scales scales = {0};
    if (rpi_trainer_has_label_loss(t)) scales.label = 1.0f / (float)batch->global_labels;
    if (rpi_trainer_has_sample_loss(t)) scales.sample = 1.0f / (float)batch->global_count;
    return scales;
}

/* The runs of the model on the rank with most samples, of so many in all. */
static int64_t runs_of(const rpi_trainer *t, int64_t count) {
    int64_t most = rpi_train_place_most(&t->place, true, count);
    return (most + t->micro_batch - 1) / t->micro_batch;
}

rp_status rpi_trainer_learn(rpi_trainer *t, int64_t step, rpi_source_batch *out_batch,
                            double *out_loss) {
    int64_t end;
    RP_TRY(rpi_source_deal(&t->source, step, out_batch));
    RP_TRY(rpi_trainer_cut_batch(t, out_batch));
    rpi_replica_batch batch = {.samples = out_batch,
                               .seed = (uint64_t)t->options->seed,
                               .step = (uint64_t)t->step,
                               .scales = scales_of(t, out_batch),
                               .on_step = t->timeline || t->profile ? on_step : NULL};
    rpi_train_place_work(&t->place, out_batch->global_count, &batch.first_sample, &end);
    if (rpi_trainer_passes_gradients(t)) batch.runs = runs_of(t, out_batch->global_count);
    mix(t, step, out_batch, &batch.scales);
    if (rpi_source_begins_epoch(&t->source, step)) rpi_memories_close_after_fork(&t->memories);
    return t->replica->learn(t->replica_self, &batch, out_loss);
}

/* This rank's report about the step is sent after the last bucket. */
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
    RP_TRY(rpi_losses_survive(&t->losses, t->strategy->finish(t->strategy_self, &exposed)));
    int64_t start = rpi_now_ns();
    if (!t->losses.is_pending)
        RP_TRY(rpi_losses_survive(&t->losses, rpi_step_reports_wait(&t->reports)));
    int64_t told = rpi_now_ns() - start;
    metrics->exposed_s = rpi_seconds(exposed + t->waited_ns + (t->place.world > 1 ? told : 0));
    return RP_OK;
}

/* The samples from which a step learns, without those of replicas that have died. */
static int64_t count_of(const rpi_trainer *t, const rpi_source_batch *batch) {
    return batch->global_count * t->source.sample_units * t->place.replicas / t->place.workers;
}

void rpi_trainer_count_from_here(rpi_trainer *t) {
    rpi_grid_comms_stats(&t->comms, t->comm, &t->traffic);
}

void rpi_trainer_count_not(rpi_trainer *t, const rp_comm_stats *since) {
    rp_comm_stats now;
    rpi_grid_comms_stats(&t->comms, t->comm, &now);
    t->traffic.wire_bytes_sent += now.wire_bytes_sent - since->wire_bytes_sent;
    t->traffic.encode_s += now.encode_s - since->encode_s;
    t->traffic.decode_s += now.decode_s - since->decode_s;
}

/* What the last step left under way was sent since, and counts for this one. */
static void count_traffic(rpi_trainer *t, const rp_comm_stats *now, rpi_step_metrics *metrics) {
    metrics->encode_s = now->encode_s - t->traffic.encode_s;
    metrics->decode_s = now->decode_s - t->traffic.decode_s;
    metrics->wire_bytes = now->wire_bytes_sent - t->traffic.wire_bytes_sent;
    t->traffic = *now;
}

rp_status rpi_trainer_step(rpi_trainer *t, rpi_step_metrics *out_metrics) {
    rp_comm_stats before, after;
    rpi_grid_comms_stats(&t->comms, t->comm, &before);
    t->waited_ns = 0;
    rpi_profile_begin(t->profile);
    int64_t start = rpi_now_ns();
    rpi_step_picture_begin(&t->picture, t->step + 1, start);
    rpi_step_metrics metrics = {.step = t->step + 1,
                                .staleness_mean = NAN,
                                .staleness_max = NAN,
                                .missed_updates = NAN};
    metrics.lr = t->learning_rate = rpi_lr_at(t->schedule, &t->lr, t->step);
    rpi_optimizer_state_begin(&t->optimizer);
    rpi_activation_codec_begin(&t->activations, t->step);
    t->strategy->begin(t->strategy_self, t->step);
    rpi_source_batch batch;
    int64_t in_layers = rpi_trainer_tensor_wait_ns(t) + rpi_trainer_context_wait_ns(t);
    RP_TRY(rpi_trainer_learn(t, t->step, &batch, &metrics.loss));
    t->waited_ns += rpi_trainer_tensor_wait_ns(t) + rpi_trainer_context_wait_ns(t) - in_layers;
    metrics.count = count_of(t, &batch);
    metrics.unit = t->network.task->unit;
    RP_TRY(rpi_losses_survive(&t->losses, report(t, &batch, metrics.loss, start)));
    RP_TRY(finish(t, &metrics));
    /* What a step leaves under way counts for the next one; the last step has no next one. */
    if (t->step + 1 == t->total_steps) RP_TRY(rpi_trainer_complete(t));

    int64_t end = rpi_now_ns();
    rpi_step_picture_end(&t->picture, end);
    rpi_grid_comms_stats(&t->comms, t->comm, &after);
    rpi_strategy_report outer = {NAN, NAN};
    if (t->strategy->report) t->strategy->report(t->strategy_self, &outer);
    metrics.outer_gradient_norm = outer.outer_gradient_norm;
    metrics.autocorrelation = outer.autocorrelation;
    metrics.gradient_norm = t->optimizer.norm;
    metrics.step_s = rpi_seconds(end - start);
    metrics.compute_s = metrics.step_s - metrics.exposed_s;
    metrics.comm_s = after.busy_s - before.busy_s;
    count_traffic(t, &after, &metrics);
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
