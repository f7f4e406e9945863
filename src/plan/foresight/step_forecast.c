#include "plan/foresight/step_forecast.h"

#include "base/memory.h"
#include "base/status.h"
#include "plan/foresight/gradient_time.h"
#include "plan/foresight/layer_time.h"
#include "plan/foresight/pipeline_steps.h"

#include <math.h>

enum { FEW_STAGES = 64 }; /* with fewer stages, times need no memory */

const char *const rpi_time_names[RPI_TIME_ITEMS] = {
    "compute", "tensor sums", "key gathers", "bubble", "hops", "data sums", "optimizer", "host",
};

/* ---- stages ---- */

/* The time of each stage, forward and backward with recomputation. */
static void time_stages(const rpi_forecast_job *j, double *forward_s, double *backward_s) {
    rpi_step_terms *x = j->x;
    x->head_s = rpi_head_time_s(j);
    for (int64_t stage = 0; stage < j->l->pipeline; stage++) {
        double layers = (double)rpi_stage_layers(j->l, stage);
        double head = stage == j->l->pipeline - 1 ? x->head_s / 3 : 0;
        forward_s[stage] = layers * x->forward_s + head;
        backward_s[stage] =
            layers * (x->backward_s + x->again_s) + 2 * head + rpi_gradients_added_s(j, stage);
        double all_s = forward_s[stage] + backward_s[stage];
        if (all_s <= x->slot_s) continue;
        x->slot_s = all_s;
        x->layers = rpi_stage_layers(j->l, stage);
    }
}

/* The ranks of a stage on a host send their micro-batches at the same time over one link. */
static rpi_pipeline_steps steps_of(const rpi_forecast_job *j, const double *forward_s,
                                   const double *backward_s) {
    const rpi_machine *m = j->m;
    int64_t stage_ranks = j->l->tensor * rpi_layout_sharers(j->l);
    double bytes = j->tokens * (double)j->l->model.hidden * rpi_forecast_crossing_bytes(j);
    double senders = fmin((double)m->ranks_per_host, (double)stage_ranks);
    bool is_one_host = rpi_layout_ranks(j->l) <= m->ranks_per_host;
    return (rpi_pipeline_steps){
        .stages = j->l->pipeline,
        .micro_batches = j->x->micro_batches,
        .chunks = j->l->interleave,
        .schedule = j->l->schedule,
        .weights_share = rpi_layer_weights_s(j) / (j->x->backward_s + j->x->again_s),
        .forward_s = forward_s,
        .backward_s = backward_s,
        .border_bytes = bytes / j->t,
        .blocks = rpi_forecast_fact(j, RPI_FACT_HOP_BLOCKS),
        .stages_per_host = is_one_host ? j->l->pipeline : m->ranks_per_host / stage_ranks,
        .bytes_per_s = m->link_bytes_s * rpi_forecast_fact(j, RPI_FACT_LINK_SHARE) / senders,
        .latency_s = m->link_latency_s,
        .inside_bytes_per_s = m->local_bytes_s,
        .inside_latency_s = m->local_latency_s};
}

static double hop_s(const rpi_pipeline_steps *s) {
    if (s->stages == 1) return 0;
    if (s->stages_per_host >= s->stages)
        return s->inside_latency_s + s->border_bytes / s->inside_bytes_per_s;
    return s->latency_s + s->border_bytes / s->bytes_per_s;
}

static rp_status time_pipeline(const rpi_forecast_job *j, bool by_events, rpi_forecast *out) {
    rpi_step_terms *x = j->x;
    size_t stages = (size_t)j->l->pipeline;
    double few[2 * FEW_STAGES], *many = NULL, *times = few, m = (double)x->micro_batches;
    if (stages > FEW_STAGES) {
        RP_TRY(rpi_alloc_array(2 * stages, sizeof *many, "times of stages", &many));
        times = many;
    }
    time_stages(j, times, times + stages);
    rpi_pipeline_steps steps = steps_of(j, times, times + stages);
    rpi_pipeline_time time;
    time.ideal_s = time.time_s = rpi_pipeline_steps_bound(&steps);
    rp_status status = by_events ? rpi_pipeline_steps_time(&steps, &time) : RP_OK;
    x->hop_s = hop_s(&steps);
    rpi_free(many);
    double sums_s = fmin((double)x->layers * rpi_layer_sum_passes(j) * x->sums_s, x->slot_s);
    double keys_s =
        fmin((double)x->layers * RPI_LAYER_KEY_PASSES * x->keys_s, x->slot_s - sums_s);
    out->seconds[RPI_TIME_TENSOR] = m * sums_s;
    out->seconds[RPI_TIME_KEYS] = m * keys_s;
    out->seconds[RPI_TIME_COMPUTE] = m * (x->slot_s - sums_s - keys_s);
    out->seconds[RPI_TIME_BUBBLE] = fmax(0, time.ideal_s - m * x->slot_s);
    out->seconds[RPI_TIME_HOPS] = fmax(0, time.time_s - time.ideal_s);
    return status;
}

/* ---- all of it ---- */

double rpi_pass_flops(const rpi_training_layout *l) {
    rpi_transformer_flops f = rpi_transformer_flops_of(&l->model, l->sequence);
    return rpi_layout_tokens(l) * (f.layer_matrices + f.layer_attention) / (double)l->tensor;
}

/* The host determines the time, and no training that the device was fitted to has passes as
 * small. */
static bool waits_for_another_host(const rpi_forecast_job *j) {
    const rpi_step_terms *x = j->x;
    double device_s = x->products_s + x->attention_s + x->memory_s + x->sums_s;
    double least = rpi_forecast_fact(j, RPI_FACT_FITTED_PASS) * (1 - 1e-6);
    return x->start_s > device_s && rpi_pass_flops(j->l) < least;
}

/* Ranks with shards of gradients or parameters need more host time in a step. */
static double step_host_s(const rpi_forecast_job *j) {
    bool has_shards = j->l->zero >= 2 && rpi_layout_sharers(j->l) > 1;
    return rpi_forecast_fact(j, RPI_FACT_STEP_HOST) + rpi_gradients_looked_at_s(j) +
           (has_shards ? rpi_forecast_fact(j, RPI_FACT_SHARD_HOST) : 0);
}

static void sum_up(const rpi_forecast_job *j, rpi_forecast *out) {
    double tokens = (double)j->l->global_batch * (double)j->l->sequence;
    double ranks = (double)rpi_layout_ranks(j->l);
    for (int i = 0; i < RPI_TIME_ITEMS; i++) out->step_s += out->seconds[i];
    out->is_far =
        ranks > rpi_forecast_fact(j, RPI_FACT_FITTED_RANKS) || waits_for_another_host(j);
    double factor =
        rpi_forecast_fact(j, out->is_far ? RPI_FACT_RESIDUAL_FAR : RPI_FACT_RESIDUAL);
    out->low_s = out->step_s / factor;
    out->high_s = out->step_s * factor;
    out->tokens_per_s = tokens / out->step_s;
    rpi_step_flops f =
        rpi_transformer_step_flops(&j->l->model, tokens, j->l->sequence, j->l->recompute);
    out->peak_flops = j->peak;
    out->mfu = f.model / (out->step_s * ranks * j->peak);
    out->memory = rpi_rank_memory_most(j->l, rpi_forecast_fact(j, RPI_FACT_CONTEXT_BYTES),
                                       rpi_forecast_fact(j, RPI_FACT_FRAGMENT_SHARE));
    out->fits = out->memory.all <= rpi_forecast_fact(j, RPI_FACT_MEMORY_BYTES);
}

static rp_status forecast(const rpi_training_layout *l, const rpi_machine *m, bool by_events,
                          rpi_forecast *out) {
    rpi_fact peak;
    int64_t ranks = rpi_layout_ranks(l);
    if (ranks > m->ranks_per_host && ranks % m->ranks_per_host)
        return RP_FAIL(INVALID, "%lld ranks are no whole hosts of %lld", (long long)ranks,
                       (long long)m->ranks_per_host);
    RP_TRY(rpi_plan_device_peak(&m->device, l->precision->dtype, &peak));
    *out = (rpi_forecast){0};
    rpi_forecast_job j = {.l = l,
                          .m = m,
                          .peak = rpi_plan_device_value(&m->device, peak),
                          .tokens = rpi_layout_tokens(l),
                          .t = (double)l->tensor,
                          .parts = rpi_layout_parts(l),
                          .products = rpi_measured_products(m->rates, l->precision->dtype),
                          .x = &out->terms};
    out->terms.micro_batches = rpi_layout_micro_batches(l);
    rpi_layer_time(&j);
    RP_TRY(time_pipeline(&j, by_events, out));
    out->seconds[RPI_TIME_DATA] = rpi_gradients_exposed_s(&j);
    out->seconds[RPI_TIME_OPTIMIZER] = rpi_optimizer_time_s(&j);
    out->seconds[RPI_TIME_HOST] = step_host_s(&j);
    sum_up(&j, out);
    return RP_OK;
}

rp_status rpi_forecast_step(const rpi_training_layout *l, const rpi_machine *m,
                            rpi_forecast *out) {
    return forecast(l, m, true, out);
}

rp_status rpi_forecast_bound(const rpi_training_layout *l, const rpi_machine *m,
                             rpi_forecast *out) {
    return forecast(l, m, false, out);
}
