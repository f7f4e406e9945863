#include "cli/run_forecast.h"

#include "base/status.h"
#include "cli/plan_scaling.h"
#include "cli/plan_training.h"
#include "cli/run_traffic.h"
#include "plan/foresight/layer_time.h"
#include "redpoll/codec.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MEBIBYTE 1048576.
enum { CHUNKS = 2 }; /* model chunks of a stage in the interleaved pipelines of redpoll train */

static const rpi_run_item_info items[RPI_RUN_ITEMS] = {
    [RPI_RUN_STEP] = {"step", "step_s", "s"},
    [RPI_RUN_COMPUTE] = {"compute", "compute_s", "s"},
    [RPI_RUN_EXPOSED] = {"communication exposed", "exposed_s", "s"},
    [RPI_RUN_MEMORY] = {"memory of a rank, peak", "memory_bytes", "bytes"},
    [RPI_RUN_SENT] = {"sent by a rank", "wire_bytes", "bytes"},
    [RPI_RUN_RATE] = {"tokens a second", "tokens_s", "tokens/s"},
};

const rpi_run_item_info *rpi_run_item_at(int index) {
    return index >= 0 && index < RPI_RUN_ITEMS ? &items[index] : NULL;
}

typedef struct job {
    const rpi_run_record *record;
    rpi_planned_training planned;
    rpi_precision precision; /* with the state of the run's optimizer */
    rpi_scaling_exchange exchange;
    double sent;      /* bytes, in an exchange */
    double in_layers; /* bytes of a step, between ranks that share layers */
    double of_keys;   /* and between ranks that share sequences */
} job;

/* ---- the run, as a training that is planned ---- */

static bool sums_gradients(const rpi_run_record *r) {
    size_t length = strcspn(r->strategy, ":");
    return r->ranks == 1 || strncmp(r->strategy, "all-reduce", length) == 0;
}

/* Moments in 4 bytes an element: Adam's two, the running sum of momentum, or none. */
static double optimizer_bytes(const rpi_run_record *r) {
    bool is_sgd = r->optimizer && strcmp(r->optimizer, "sgd") == 0;
    return !is_sgd ? 8 : r->momentum > 0 ? 4 : 0;
}

static bool is_schedule(const rpi_run_record *r, const char *name) {
    return r->pipeline > 1 && r->schedule && strcmp(r->schedule, name) == 0;
}

/* A link that is shaped is each rank's own, as if each were on a host of its own. */
static rp_status read_training(const char *machine, job *j) {
    const rpi_run_record *r = j->record;
    const char zero[2] = {(char)('0' + (r->zero < 4 ? r->zero : 3)), '\0'};
    int64_t replica = r->tensor * r->context * r->pipeline, replicas = r->ranks / replica;
    if (replicas < 1 || r->ranks % replica)
        return RP_FAIL(INVALID, "%lld ranks are not %lld x %lld x %lld in each replica",
                       (long long)r->ranks, (long long)r->tensor, (long long)r->context,
                       (long long)r->pipeline);
    int64_t samples =
        r->micro_batch ? r->micro_batch : r->global_batch / (replicas * r->accumulate);
    rpi_plan_training said = {.model = r->model,
                              .machine = machine,
                              .link = r->link,
                              .zero = zero,
                              .recompute = r->recompute ? "full" : "none",
                              .codec = r->codec,
                              .activations_codec = r->activations_codec,
                              .precision =
                                  r->dtype && strcmp(r->dtype, "bf16") == 0 ? "amp" : "fp32",
                              .hosts = r->link ? r->ranks : 1,
                              .ranks_per_host = r->link ? 1 : r->ranks,
                              .tp = r->tensor,
                              .cp = r->context,
                              .pp = r->pipeline,
                              .dp = replicas,
                              .micro_batch = samples > 0 ? samples : 1,
                              .sequence = r->sequence,
                              .interleave = is_schedule(r, "interleaved") ? CHUNKS : 1,
                              .fused_attention = true};
    said.sequence_parallel = r->sequence_parallel;
    int64_t turn = said.micro_batch * replicas;
    said.global_batch = (r->global_batch + turn - 1) / turn * turn;
    RP_TRY(rpi_plan_training_read(&said, true, &j->planned));
    j->precision = *j->planned.layout.precision;
    j->precision.optimizer = optimizer_bytes(r);
    j->planned.layout.precision = &j->precision;
    if (r->pipeline > 1) j->planned.layout.schedule = r->schedule;
    j->planned.machine.device.facts[RPI_FACT_BUCKET].value = r->bucket_mb * MEBIBYTE;
    return rpi_layout_check(&j->planned.layout);
}

/* ---- what is exchanged ---- */

static double measured(const job *j, int pass, const char *codec) {
    const rpi_machine_item *item =
        rpi_machine_account_find(j->planned.account, RPI_WORK_CODEC, pass, codec);
    double rate = rpi_plan_device_value(&j->planned.machine.device, RPI_FACT_MEMORY_RATE);
    return item ? item->value : rate;
}

static rp_status cost_model(const job *j, rpi_cost_model *out) {
    const rpi_machine *m = &j->planned.machine;
    rp_codec codec;
    char text[RPI_MACHINE_NAME];
    RP_TRY(rp_codec_parse(j->record->codec, &codec));
    bool is_shaped = j->record->link != NULL;
    *out = (rpi_cost_model){.bytes_per_s = is_shaped ? m->link_bytes_s : m->local_bytes_s,
                            .latency_s = is_shaped ? m->link_latency_s : m->local_latency_s,
                            .inside_bytes_per_s = m->local_bytes_s,
                            .inside_latency_s = m->local_latency_s,
                            .frame_bytes = 64};
    if (rp_codec_is_exact(&codec, RP_F32)) return RP_OK;
    rp_codec_text(&codec, text, sizeof text);
    out->encode_bytes_s = measured(j, 0, text);
    out->decode_add_bytes_s = measured(j, 1, text);
    return RP_OK;
}

static rp_status price(const rpi_forecast *f, double computed_s, job *j) {
    const rpi_run_record *r = j->record;
    rpi_scaling_job work = {.strategy = sums_gradients(r) ? "all-reduce" : r->strategy,
                            .codec = r->codec,
                            .algorithm = r->algorithm,
                            .ranks = (int)(r->ranks / (r->tensor * r->pipeline)),
                            .ranks_per_host = r->link ? 1 : (int)r->ranks,
                            .count = rpi_stage_parameters(&j->planned.layout, 0),
                            .bucket_bytes = r->bucket_mb * MEBIBYTE};
    work.work.compute_s = computed_s;
    work.work.backward_s = (double)f->terms.layers * f->terms.backward_s;
    rpi_scaling_know_cores(&j->planned.machine, work.bucket_bytes, &work.work);
    RP_TRY(cost_model(j, &work.model));
    RP_TRY(rpi_scaling_price(&work, &j->exchange));
    j->sent = j->exchange.wire_bytes;
    return sums_gradients(r) ? rpi_run_traffic(r, &work, &j->sent) : RP_OK;
}

/* The first stage, whose rank writes the run's metrics, hands each micro-batch on, and sums the
 * gradient of the table that it shares with the last one, where that is another. Each
 * tensor-parallel rank has all tokens, and hands them on, or a part of each with sequence
 * parallelism. */
static double pipeline_bytes(const job *j) {
    const rpi_training_layout *l = &j->planned.layout;
    double coded = j->planned.machine.activation_bytes,
           each = coded > 0 ? coded : sizeof(float);
    double border = rpi_layout_tokens(l) * (double)l->model.hidden * each / rpi_layout_parts(l);
    bool is_folded = is_schedule(j->record, "zb-v");
    double borders = is_folded ? 2 : 2 * (double)l->interleave - 1;
    double table = (double)(l->model.vocabulary * l->model.hidden) * sizeof(float);
    if (l->pipeline == 1) return 0;
    return borders * (double)rpi_layout_micro_batches(l) * border +
           (l->model.tied && !is_folded ? table / (double)l->tensor : 0);
}

/* A sum of so many elements among the first `ranks` of a layout, as it is priced. */
static rp_status price_sum(const job *j, int64_t ranks, double count, const char *codec,
                           rpi_scaling_exchange *out) {
    rpi_scaling_job work = {.strategy = "all-reduce",
                            .codec = codec,
                            .ranks = (int)ranks,
                            .ranks_per_host = j->record->link ? 1 : (int)ranks,
                            .count = count,
                            .bucket_bytes = count * sizeof(float)};
    RP_TRY(cost_model(j, &work.model));
    return rpi_scaling_price(&work, out);
}

/* Bytes that this rank sends to add up the outputs of layers that ranks share. A block has two
 * sums each way, and each end of the model one; with sequence parallelism each is a scatter and
 * a gather, what each split gathers is gathered again, and the first rank, which writes the
 * metrics, has the largest part: it scatters the less, and gives the more to gather. */
static rp_status price_layers(job *j) {
    const rpi_training_layout *l = &j->planned.layout;
    double layers = (double)rpi_stage_layers(l, 0), t = (double)l->tensor;
    double scatters = 4 * layers + 1 + (l->pipeline == 1), gathers = scatters;
    double part = l->sequence_parallel ? 1 / rpi_layout_parts(l) : 1 / t;
    if (l->sequence_parallel) gathers += 2 * layers + (l->pipeline == 1);
    bool lossy = j->planned.machine.activation_bytes > 0;
    rpi_scaling_exchange sum;
    if (l->tensor == 1) return RP_OK;
    RP_TRY(price_sum(j, l->tensor, rpi_layout_tokens(l) * (double)l->model.hidden,
                     lossy ? j->record->activations_codec : "fp32", &sum));
    double halves = scatters * (1 - part) / (1 - 1 / t) + gathers * part * t;
    j->in_layers = halves / 2 * (double)rpi_layout_micro_batches(l) * sum.wire_bytes;
    return RP_OK;
}

/* Bytes that this rank sends of keys, values and their gradients, each time half of what a sum
 * of them would send: gathered forward and where the backward pass reads them, and scattered.
 */
static rp_status price_keys(job *j) {
    const rpi_training_layout *l = &j->planned.layout;
    double count = rpi_layout_tokens(l) * (double)l->context * 2 * rpi_layout_keys(l);
    double times = RPI_LAYER_KEY_PASSES * (double)rpi_stage_layers(l, 0) *
                   (double)rpi_layout_micro_batches(l);
    rpi_scaling_exchange sum;
    if (l->context == 1) return RP_OK;
    RP_TRY(price_sum(j, l->context, count, "fp32", &sum));
    j->of_keys = times / 2 * sum.wire_bytes;
    return RP_OK;
}

/* ---- items ---- */

static void add_interval(const job *j, rpi_run_forecast *out) {
    double factor = rpi_plan_device_value(&j->planned.machine.device, RPI_FACT_RESIDUAL);
    for (int i = 0; i < RPI_RUN_ITEMS; i++) out->low[i] = out->high[i] = NAN;
    out->low[RPI_RUN_STEP] = out->values[RPI_RUN_STEP] / factor;
    out->high[RPI_RUN_STEP] = out->values[RPI_RUN_STEP] * factor;
    out->low[RPI_RUN_RATE] = out->values[RPI_RUN_RATE] / factor;
    out->high[RPI_RUN_RATE] = out->values[RPI_RUN_RATE] * factor;
}

/* The machine was measured while as many ranks computed. */
static void remark(const job *j, rpi_run_forecast *out) {
    const rpi_machine_account *a = j->planned.account;
    memcpy(out->cpu, a->cpu, sizeof out->cpu);
    out->ranks = a->ranks;
    out->threads = a->threads;
    if (a->ranks != j->record->ranks)
        snprintf(out->remark, sizeof out->remark,
                 "the machine was measured with %d rank%s at the same time, and the run has "
                 "%lld: redpoll bench machine -n %lld",
                 a->ranks, a->ranks == 1 ? "" : "s", (long long)j->record->ranks,
                 (long long)j->record->ranks);
}

/* A lossy codec with error feedback keeps what it lost of each gradient. */
static double residual_bytes(const job *j) {
    bool is_kept = j->planned.machine.codec_bytes > 0 && j->record->error_feedback;
    return is_kept && j->record->ranks > 1
               ? sizeof(float) * rpi_stage_parameters(&j->planned.layout, 0)
               : 0;
}

/* Memory of a rank of the first stage, which writes the metrics of the run. */
static double first_rank_memory(const job *j) {
    const rpi_plan_device *d = &j->planned.machine.device;
    return rpi_rank_memory_of(&j->planned.layout, 0,
                              rpi_plan_device_value(d, RPI_FACT_CONTEXT_BYTES),
                              rpi_plan_device_value(d, RPI_FACT_FRAGMENT_SHARE))
        .all;
}

/* Seconds of a step in which a rank neither computes nor sums gradients. */
static double waits(const rpi_forecast *f) {
    return f->seconds[RPI_TIME_TENSOR] + f->seconds[RPI_TIME_KEYS] +
           f->seconds[RPI_TIME_BUBBLE] + f->seconds[RPI_TIME_HOPS];
}

static rp_status forecast(job *j, rpi_run_forecast *out) {
    rpi_training_layout *l = &j->planned.layout;
    rpi_forecast all;
    RP_TRY(rpi_forecast_step(l, &j->planned.machine, &all));
    double summed_s = all.seconds[RPI_TIME_DATA], waited_s = waits(&all);
    double computed_s = all.step_s - summed_s - waited_s;
    RP_TRY(price(&all, computed_s, j));
    RP_TRY(price_layers(j));
    RP_TRY(price_keys(j));
    double exposed_s =
        waited_s + (sums_gradients(j->record) ? summed_s : rpi_scaling_exposed_s(&j->exchange));
    double tokens = (double)l->global_batch * (double)l->sequence;
    out->values[RPI_RUN_STEP] = computed_s + exposed_s;
    out->values[RPI_RUN_COMPUTE] = computed_s;
    out->values[RPI_RUN_EXPOSED] = exposed_s;
    out->values[RPI_RUN_MEMORY] = first_rank_memory(j) + residual_bytes(j);
    out->values[RPI_RUN_SENT] =
        j->sent / j->exchange.every + pipeline_bytes(j) + j->in_layers + j->of_keys;
    double workers = l->data > 1 ? j->exchange.workers / (double)l->data : 1;
    out->values[RPI_RUN_RATE] = tokens * workers / out->values[RPI_RUN_STEP];
    add_interval(j, out);
    remark(j, out);
    return RP_OK;
}

rp_status rpi_run_forecast_make(const rpi_run_record *record, const char *machine,
                                rpi_run_forecast *out) {
    job j = {.record = record};
    *out = (rpi_run_forecast){0};
    rp_status status = read_training(machine, &j);
    if (status == RP_OK) status = forecast(&j, out);
    rpi_planned_training_close(&j.planned);
    return status;
}
