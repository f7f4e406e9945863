#include "plan/foresight/step_forecast.h"

#include "base/memory.h"
#include "base/status.h"
#include "plan/foresight/group_sums.h"
#include "plan/foresight/pipeline_steps.h"

#include <math.h>

const char *const rpi_time_names[RPI_TIME_ITEMS] = {
    "compute", "tensor sums", "bubble", "hops", "data sums", "optimizer", "host",
};

typedef struct job {
    const rpi_training_layout *l;
    const rpi_machine *m;
    double peak; /* operations a second */
    double tokens, t, parts;
    const rpi_rate_table *products; /* that were measured, in the precision's dtype; or NULL */
    rpi_step_terms *x;
} job;

enum { FORWARD, BACKWARD, WEIGHTS /* of BACKWARD, what no other stage waits for */ };
enum { FEW_STAGES = 64 }; /* whose times need no memory */

static double fact(const job *j, rpi_fact which) {
    return rpi_plan_device_value(&j->m->device, which);
}

/* The longer of two that go on at once, without a cliff where they are equal. */
static double longer(double a, double b) {
    double most = fmax(a, b), least = fmin(a, b);
    return most > 0 ? most * pow(1 + pow(least / most, 4), .25) : 0;
}

/* ---- a layer ---- */

/* Seconds of m n k multiply-adds. */
static double product_s(const job *j, double m, double n, double k) {
    const double at[] = {m, n, k};
    if (j->products) return 2 * m * n * k / rpi_rate_at(j->products, at);
    double side = fmin(m, fmin(n, k));
    double slow = pow(fact(j, RPI_FACT_GEMM_HALF_SIDE) / side, fact(j, RPI_FACT_GEMM_POWER));
    return 2 * m * n * k * (1 + slow) / (j->peak * fact(j, RPI_FACT_GEMM_SHARE));
}

static double memory_s(const job *j, double bytes) {
    return bytes / (fact(j, RPI_FACT_MEMORY_RATE) * fact(j, RPI_FACT_MEMORY_SHARE));
}

/* A pass forward over a matrix of `in` to `out`; backward for what went in, and for the matrix.
 */
static double matrix_s(const job *j, int pass, double out, double in) {
    if (pass == FORWARD) return product_s(j, j->tokens, out, in);
    if (pass == WEIGHTS) return product_s(j, out, in, j->tokens);
    return product_s(j, j->tokens, in, out) + product_s(j, out, in, j->tokens);
}

static double products_s(const job *j, int pass) {
    const rpi_transformer *m = &j->l->model;
    double h = (double)m->hidden, heads = (double)(m->heads * m->head) / j->t;
    double kv = fmax((double)m->kv_heads / j->t, 1) * (double)m->head;
    double f = (double)m->ffn / j->t;
    return matrix_s(j, pass, heads + 2 * kv, h) + matrix_s(j, pass, h, heads) +
           matrix_s(j, pass, (m->gated ? 2 : 1) * f, h) + matrix_s(j, pass, h, f);
}

/* Products of queries with keys, and of what becomes of them with values. Backward each has two
 * in its place, and fused attention makes its scores again besides: five in the place of two.
 */
static double attention_s(const job *j, int pass) {
    const rpi_transformer *m = &j->l->model;
    double heads = (double)m->heads / j->t, s = (double)j->l->sequence;
    double flops = 4 * j->tokens * s * heads * (double)m->head;
    double times = pass == FORWARD ? 1 : j->l->fused_attention ? 2.5 : 2;
    const double at[] = {s, (double)m->head, heads * (double)j->l->micro_batch};
    if (!j->l->fused_attention) return times * at[2] * 2 * product_s(j, s, s, (double)m->head);
    if (j->m->rates && j->m->rates->attention[pass].count)
        return times * flops / rpi_rate_at(&j->m->rates->attention[pass], at);
    return times * flops / (j->peak * fact(j, RPI_FACT_ATTENTION_SHARE));
}

/* Scores that are written, read and written by softmax and by dropout, and read. */
static double scores_bytes(const rpi_training_layout *l) {
    const rpi_transformer *m = &l->model;
    double passes = m->attention_dropout ? 6 : 4, mask = m->attention_dropout ? 1 : 0;
    double count = (double)(m->heads * l->sequence) / (double)l->tensor *
                   (double)(l->micro_batch * l->sequence);
    return l->fused_attention ? 0 : count * (passes * l->precision->activation + mask);
}

/* Two norms read and write, two sums read twice and write; the activation reads and writes. */
double rpi_layer_rest_bytes(const rpi_training_layout *l) {
    const rpi_transformer *m = &l->model;
    double e = l->precision->activation, h = (double)m->hidden, t = (double)l->tensor;
    double copied = (10 * e + (m->dropout ? 2 : 0)) * h / (l->sequence_parallel ? t : 1);
    double shared = e * (m->gated ? 3 : 2) * (double)m->ffn / t;
    return (double)(l->micro_batch * l->sequence) * (copied + shared) + scores_bytes(l);
}

static double rest_s(const job *j, int pass) {
    const double bytes = rpi_layer_rest_bytes(j->l);
    const rpi_measured_rates *r = j->m->rates;
    if (r && r->rest[pass].count) return bytes / rpi_rate_at(&r->rest[pass], &bytes);
    return memory_s(j, bytes) * (pass == FORWARD ? 1 : fact(j, RPI_FACT_MEMORY_BACKWARD));
}

static double backward_s(const job *j) {
    return products_s(j, BACKWARD) + attention_s(j, BACKWARD) + rest_s(j, BACKWARD);
}

static double tensor_sum_s(const job *j, double bytes) {
    rpi_group g = rpi_group_of(j->m, j->l->tensor, 1);
    return 2 * rpi_group_half_s(j->m, &g, bytes, bytes);
}

/* Scores are a matrix for each head and sample; another softmax, of several kernels, takes as
 * many as the fused one does not. */
static double softmax_host_s(const job *j) {
    double multiple = fact(j, RPI_FACT_SOFTMAX_MULTIPLE);
    double matrices = (double)(j->l->model.heads * j->l->micro_batch) / j->t;
    bool is_fused = multiple < 1 || fmod(matrices, multiple) == 0;
    return j->l->fused_attention || is_fused ? 0 : fact(j, RPI_FACT_SOFTMAX_HOST);
}

/* Forward, backward, and once more what is made again. */
static void time_layer(const job *j) {
    rpi_step_terms *x = j->x;
    bool is_shared = j->l->tensor > 1;
    x->products_s = products_s(j, FORWARD);
    x->attention_s = attention_s(j, FORWARD);
    x->memory_s = rest_s(j, FORWARD);
    if (is_shared)
        x->sums_s = 2 * tensor_sum_s(j, j->tokens * (double)j->l->model.hidden *
                                            j->l->precision->activation);
    x->start_s = fact(j, RPI_FACT_LAYER_HOST) +
                 (is_shared ? 2 * fact(j, RPI_FACT_SUM_HOST) : 0) + softmax_host_s(j);
    double device_s = x->products_s + x->attention_s + x->memory_s;
    x->forward_s = longer(device_s + x->sums_s, x->start_s);
    x->backward_s =
        longer(backward_s(j) + (1 - fact(j, RPI_FACT_SUM_HIDDEN)) * x->sums_s, x->start_s);
    if (j->l->recompute == RPI_RECOMPUTE_FULL) x->again_s = x->forward_s;
    if (j->l->recompute == RPI_RECOMPUTE_SELECTIVE && !j->l->fused_attention)
        x->again_s = x->attention_s + memory_s(j, scores_bytes(j->l));
}

/* Passes over a layer in which tensor-parallel ranks sum and wait. */
static double passes(const job *j) {
    double again = j->l->recompute == RPI_RECOMPUTE_FULL ? 1 : 0;
    return 2 - fact(j, RPI_FACT_SUM_HIDDEN) + again;
}

/* Forward and backward, and the loss, which goes over the logits in 4 bytes six times. */
static double head_s(const job *j) {
    const rpi_measured_rates *r = j->m->rates;
    double v = (double)j->l->model.vocabulary / j->t, h = (double)j->l->model.hidden;
    const double at[] = {j->tokens, v, h}, flops = 2 * j->tokens * v * h;
    if (r && r->head[FORWARD].count && r->head[BACKWARD].count)
        return flops / rpi_rate_at(&r->head[FORWARD], at) +
               2 * flops / rpi_rate_at(&r->head[BACKWARD], at);
    return matrix_s(j, FORWARD, v, h) + matrix_s(j, BACKWARD, v, h) +
           memory_s(j, 6 * 4 * j->tokens * v);
}

/* ---- stages ---- */

/* A micro-batch's gradients are read, and added to those that are read and written; products
 * add to wider ones by themselves, and ZeRO 3 adds what it has scattered. */
static double accumulate_s(const job *j, int64_t stage) {
    const rpi_precision *p = j->l->precision;
    bool is_separate = p->gradient <= p->activation && j->l->zero < 3 && !j->m->rates;
    return is_separate ? memory_s(j, 3 * p->gradient * rpi_stage_parameters(j->l, stage)) : 0;
}

/* How long each takes, forward and backward with what is made again. */
static void time_stages(const job *j, double *forward_s, double *backward_s) {
    rpi_step_terms *x = j->x;
    x->head_s = head_s(j);
    for (int64_t stage = 0; stage < j->l->pipeline; stage++) {
        double layers = (double)rpi_stage_layers(j->l, stage);
        double head = stage == j->l->pipeline - 1 ? x->head_s / 3 : 0;
        forward_s[stage] = layers * x->forward_s + head;
        backward_s[stage] =
            layers * (x->backward_s + x->again_s) + 2 * head + accumulate_s(j, stage);
        double all_s = forward_s[stage] + backward_s[stage];
        if (all_s <= x->slot_s) continue;
        x->slot_s = all_s;
        x->layers = rpi_stage_layers(j->l, stage);
    }
}

/* Ranks of a stage on a host hand their micro-batches on at once, over the one link. */
static rpi_pipeline_steps steps_of(const job *j, const double *forward_s,
                                   const double *backward_s) {
    const rpi_machine *m = j->m;
    int64_t stage_ranks = j->l->tensor * j->l->data;
    double bytes = j->tokens * (double)j->l->model.hidden * j->l->precision->activation;
    double senders = fmin((double)m->ranks_per_host, (double)stage_ranks);
    bool is_one_host = rpi_layout_ranks(j->l) <= m->ranks_per_host;
    return (rpi_pipeline_steps){
        .stages = j->l->pipeline,
        .micro_batches = j->x->micro_batches,
        .chunks = j->l->interleave,
        .schedule = j->l->schedule,
        .weights_share = products_s(j, WEIGHTS) / (j->x->backward_s + j->x->again_s),
        .forward_s = forward_s,
        .backward_s = backward_s,
        .border_bytes = bytes / j->t,
        .blocks = fact(j, RPI_FACT_HOP_BLOCKS),
        .stages_per_host = is_one_host ? j->l->pipeline : m->ranks_per_host / stage_ranks,
        .bytes_per_s = m->link_bytes_s * fact(j, RPI_FACT_LINK_SHARE) / senders,
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

static rp_status time_pipeline(const job *j, bool by_events, rpi_forecast *out) {
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
    double sums_s = fmin((double)x->layers * passes(j) * x->sums_s, x->slot_s);
    out->seconds[RPI_TIME_TENSOR] = m * sums_s;
    out->seconds[RPI_TIME_COMPUTE] = m * (x->slot_s - sums_s);
    out->seconds[RPI_TIME_BUBBLE] = fmax(0, time.ideal_s - m * x->slot_s);
    out->seconds[RPI_TIME_HOPS] = fmax(0, time.time_s - time.ideal_s);
    return status;
}

/* ---- gradients ---- */

static double most_parameters(const rpi_training_layout *l) {
    double most = 0;
    for (int64_t stage = 0; stage < l->pipeline; stage++)
        most = fmax(most, rpi_stage_parameters(l, stage));
    return most;
}

/* A scatter of gradients; encoded between hosts. */
static double scatter_s(const job *j, const rpi_group *g, double elements) {
    double bytes = elements * j->l->precision->gradient;
    double between = j->m->codec_bytes > 0 ? elements * j->m->codec_bytes : bytes;
    return rpi_group_half_s(j->m, g, bytes, between);
}

static double gather_s(const job *j, const rpi_group *g, double elements, double each) {
    double between = j->m->codec_bytes > 0 && j->l->zero == 0 ? j->m->codec_bytes : each;
    return rpi_group_half_s(j->m, g, elements * each, elements * between);
}

/* Encoding and decoding read what they write, beside the link. */
static double codec_s(const job *j, const rpi_group *g, double elements) {
    if (j->m->codec_bytes == 0 || g->hosts == 1) return 0;
    double each = j->l->precision->gradient + j->m->codec_bytes;
    if (j->m->codec_s > 0) return elements * j->m->codec_s / (double)g->inside;
    return 2 * memory_s(j, elements * each / (double)g->inside);
}

/* ZeRO 3 gathers a layer while the one before computes, once forward and once backward, and
 * scatters behind it: each micro-batch. */
static double zero3_exposed_s(const job *j, const rpi_group *g, double elements) {
    rpi_step_terms *x = j->x;
    double m = (double)x->micro_batches, each = j->l->precision->activation;
    double one = 2 * gather_s(j, g, elements, each) + scatter_s(j, g, elements) + x->codec_s;
    x->data_s = m * one;
    x->hidden_s = m * x->slot_s;
    return m * (longer(x->slot_s, one) - x->slot_s) + one / (double)j->l->model.layers;
}

/* What cores of a host do for sums of gradients: in no way hidden, since they compute, too. */
static double core_s(const job *j, const rpi_group *g, double elements) {
    const rpi_measured_rates *r = j->m->rates;
    double bytes = elements * j->l->precision->gradient;
    if (!r) return 0;
    if (g->hosts > 1 && j->m->codec_bytes > 0) bytes = elements * j->m->codec_bytes;
    double bucket = fmin(bytes, fmax(fact(j, RPI_FACT_BUCKET), 1));
    return r->sums.count ? bytes / rpi_rate_at(&r->sums, &bucket) : 0;
}

/* The last bucket's sum begins when the backward pass has ended. */
static double last_bucket(const job *j, double bytes) {
    double bucket = fact(j, RPI_FACT_BUCKET);
    return bucket > 0 ? fmin(1, bucket / bytes) : 0;
}

static double data_exposed_s(const job *j) {
    rpi_step_terms *x = j->x;
    const rpi_precision *p = j->l->precision;
    if (j->l->data == 1) return 0;
    rpi_group g = rpi_group_of(j->m, j->l->data, j->l->tensor);
    double n = most_parameters(j->l), m = j->l->zero == 2 ? (double)x->micro_batches : 1;
    x->data_hosts = g.hosts;
    x->data_bytes = n * p->gradient;
    x->codec_s = codec_s(j, &g, n);
    if (j->l->zero == 3) return zero3_exposed_s(j, &g, n);
    double back_s = gather_s(j, &g, n, j->l->zero ? fmin(p->weight, 4) : p->gradient);
    double link_s = m * scatter_s(j, &g, n) + back_s, busy_s = 0;
    if (j->m->rates) {
        if (g.hosts == 1) link_s = 0; /* cores are the way inside a host */
        busy_s = m * core_s(j, &g, n) + x->codec_s;
    } else {
        link_s += x->codec_s;
    }
    x->data_s = link_s + busy_s;
    x->hidden_s = m * fact(j, RPI_FACT_OVERLAP) * (double)x->layers * x->backward_s;
    double least_s = link_s * last_bucket(j, x->data_bytes);
    return busy_s + fmax(least_s, link_s - x->hidden_s);
}

/* Gradients are read, weights written, the rest read and written. Before that gradients are
 * read for their norm, read and written to clip them, and written where they are cleared, by
 * trainers that a table of devices knows; redpoll train does not. */
static double optimizer_s(const job *j) {
    const rpi_precision *p = j->l->precision;
    double n = most_parameters(j->l) / (j->l->zero ? (double)j->l->data : 1);
    double cleared = j->m->rates ? 0 : 4; /* passes */
    double bytes = n * ((1 + cleared) * p->gradient + p->weight + 2 * p->optimizer);
    const rpi_measured_rates *r = j->m->rates;
    return r && r->optimizer.count ? bytes / rpi_rate_at(&r->optimizer, &bytes)
                                   : memory_s(j, bytes);
}

double rpi_pass_flops(const rpi_training_layout *l) {
    rpi_transformer_flops f = rpi_transformer_flops_of(&l->model, l->sequence);
    double tokens = (double)l->micro_batch * (double)l->sequence;
    return tokens * (f.layer_matrices + f.layer_attention) / (double)l->tensor;
}

/* The host decides, and nothing that the device was fitted to has passes as small. */
static bool waits_for_another_host(const job *j) {
    const rpi_step_terms *x = j->x;
    double device_s = x->products_s + x->attention_s + x->memory_s + x->sums_s;
    double least = fact(j, RPI_FACT_FITTED_PASS) * (1 - 1e-6);
    return x->start_s > device_s && rpi_pass_flops(j->l) < least;
}

/* Who has shards of gradients or parameters has more to do in a step. */
static double step_host_s(const job *j) {
    bool has_shards = j->l->zero >= 2 && j->l->data > 1;
    return fact(j, RPI_FACT_STEP_HOST) + (has_shards ? fact(j, RPI_FACT_SHARD_HOST) : 0);
}

/* ---- all of it ---- */

static void sum_up(const job *j, rpi_forecast *out) {
    double tokens = (double)j->l->global_batch * (double)j->l->sequence;
    double ranks = (double)rpi_layout_ranks(j->l);
    for (int i = 0; i < RPI_TIME_ITEMS; i++) out->step_s += out->seconds[i];
    out->is_far = ranks > fact(j, RPI_FACT_FITTED_RANKS) || waits_for_another_host(j);
    double factor = fact(j, out->is_far ? RPI_FACT_RESIDUAL_FAR : RPI_FACT_RESIDUAL);
    out->low_s = out->step_s / factor;
    out->high_s = out->step_s * factor;
    out->tokens_per_s = tokens / out->step_s;
    rpi_step_flops f =
        rpi_transformer_step_flops(&j->l->model, tokens, j->l->sequence, j->l->recompute);
    out->peak_flops = j->peak;
    out->mfu = f.model / (out->step_s * ranks * j->peak);
    out->memory = rpi_rank_memory_most(j->l, fact(j, RPI_FACT_CONTEXT_BYTES),
                                       fact(j, RPI_FACT_FRAGMENT_SHARE));
    out->fits = out->memory.all <= fact(j, RPI_FACT_MEMORY_BYTES);
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
    job j = {.l = l,
             .m = m,
             .peak = rpi_plan_device_value(&m->device, peak),
             .tokens = (double)l->micro_batch * (double)l->sequence,
             .t = (double)l->tensor,
             .parts = l->sequence_parallel ? (double)l->tensor : 1,
             .products = rpi_measured_products(m->rates, l->precision->dtype),
             .x = &out->terms};
    out->terms.micro_batches = rpi_layout_micro_batches(l);
    time_layer(&j);
    RP_TRY(time_pipeline(&j, by_events, out));
    out->seconds[RPI_TIME_DATA] = data_exposed_s(&j);
    out->seconds[RPI_TIME_OPTIMIZER] = optimizer_s(&j);
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
