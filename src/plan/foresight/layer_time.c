#include "plan/foresight/layer_time.h"

#include "plan/foresight/group_sums.h"
#include "plan/foresight/product_time.h"

#include <math.h>

/* WEIGHTS: the part of BACKWARD for which no other stage waits */
enum { FORWARD, BACKWARD, WEIGHTS };

/* The time of a pass over a matrix of `in` to `out`: forward, or backward for the inputs and
 * for the matrix. */
static double matrix_s(const rpi_forecast_job *j, int pass, double out, double in) {
    if (pass == FORWARD) return rpi_product_s(j, j->tokens, out, in);
    if (pass == WEIGHTS) return rpi_product_s(j, out, in, j->tokens);
    return rpi_product_s(j, j->tokens, in, out) + rpi_product_s(j, out, in, j->tokens);
}

static double products_s(const rpi_forecast_job *j, int pass) {
    const rpi_transformer *m = &j->l->model;
    double h = (double)m->hidden, heads = (double)(m->heads * m->head) / j->t;
    double kv = rpi_layout_keys(j->l);
    double f = (double)m->ffn / j->t;
    return matrix_s(j, pass, heads + 2 * kv, h) + matrix_s(j, pass, h, heads) +
           matrix_s(j, pass, (m->gated ? 2 : 1) * f, h) + matrix_s(j, pass, h, f);
}

/* The time of the products of queries with keys, and of scores with values: a rank's own
 * queries, and all keys, of which the two pieces of each rank see equally many. The backward
 * pass has two products for each of them; fused attention also computes its scores again: five
 * products for two. */
static double attention_s(const rpi_forecast_job *j, int pass) {
    const rpi_transformer *m = &j->l->model;
    double heads = (double)m->heads / j->t, s = (double)j->l->sequence;
    double flops = 4 * j->tokens * s * heads * (double)m->head;
    double times = pass == FORWARD ? 1 : j->l->fused_attention ? 2.5 : 2;
    const double at[] = {s, (double)m->head, heads * (double)j->l->micro_batch};
    if (!j->l->fused_attention)
        return times * at[2] * 2 *
               rpi_batched_product_s(j, (double)rpi_layout_sample_tokens(j->l), s,
                                     (double)m->head);
    if (j->m->rates && j->m->rates->attention[pass].count)
        return times * flops / rpi_rate_at(&j->m->rates->attention[pass], at);
    return times * flops / (j->peak * rpi_forecast_fact(j, RPI_FACT_ATTENTION_SHARE));
}

/* Scores are written, read and written by softmax and by dropout, and read. */
static double scores_bytes(const rpi_training_layout *l) {
    const rpi_transformer *m = &l->model;
    double passes = m->attention_dropout ? 6 : 4, mask = m->attention_dropout ? 1 : 0;
    double count = (double)(m->heads * l->sequence) / (double)l->tensor * rpi_layout_tokens(l);
    return l->fused_attention ? 0 : count * (passes * l->precision->activation + mask);
}

/* Two norms read and write, two sums read twice and write; the activation reads and writes. */
double rpi_layer_rest_bytes(const rpi_training_layout *l) {
    const rpi_transformer *m = &l->model;
    double e = l->precision->activation, h = (double)m->hidden, t = (double)l->tensor;
    double copied = (10 * e + (m->dropout ? 2 : 0)) * h / rpi_layout_parts(l);
    double shared = e * (m->gated ? 3 : 2) * (double)m->ffn / t;
    return rpi_layout_tokens(l) * (copied + shared) + scores_bytes(l);
}

static double rest_s(const rpi_forecast_job *j, int pass) {
    const double bytes = rpi_layer_rest_bytes(j->l);
    const rpi_measured_rates *r = j->m->rates;
    if (r && r->rest[pass].count) return bytes / rpi_rate_at(&r->rest[pass], &bytes);
    return rpi_forecast_memory_s(j, bytes) *
           (pass == FORWARD ? 1 : rpi_forecast_fact(j, RPI_FACT_MEMORY_BACKWARD));
}

static double backward_s(const rpi_forecast_job *j) {
    return products_s(j, BACKWARD) + attention_s(j, BACKWARD) + rest_s(j, BACKWARD);
}

static double tensor_sum_s(const rpi_forecast_job *j, double bytes) {
    rpi_group g = rpi_group_of(j->m, j->l->tensor, 1);
    /* the rank with the largest part determines the time */
    if (j->l->sequence_parallel) bytes *= j->t / j->parts;
    if (g.hosts == 1 && j->m->rates && j->m->rates->layer_sums.count)
        return bytes / rpi_rate_at(&j->m->rates->layer_sums, &bytes);
    return 2 * rpi_group_half_s(j->m, &g, bytes, bytes);
}

/* The time to gather keys and values of all tokens of a micro-batch, or to scatter their
 * gradients: redpoll train sends 4 bytes an element, as they are summed; others send the type
 * of their products. */
static double keys_s(const rpi_forecast_job *j) {
    double each = j->m->rates ? 4 : j->l->precision->activation;
    double bytes = 2 * j->tokens * (double)j->l->context * rpi_layout_keys(j->l) * each;
    rpi_group g = rpi_group_of(j->m, j->l->context, j->l->tensor);
    return j->l->context > 1 ? rpi_group_half_s(j->m, &g, bytes, bytes) : 0;
}

/* There is a matrix of scores for each head and sample. If the fused softmax does not take that
 * number of them, another softmax of several kernels does. */
static double softmax_host_s(const rpi_forecast_job *j) {
    double multiple = rpi_forecast_fact(j, RPI_FACT_SOFTMAX_MULTIPLE);
    double matrices = (double)(j->l->model.heads * j->l->micro_batch) / j->t;
    bool is_fused = multiple < 1 || fmod(matrices, multiple) == 0;
    return j->l->fused_attention || is_fused ? 0 : rpi_forecast_fact(j, RPI_FACT_SOFTMAX_HOST);
}

void rpi_layer_time(const rpi_forecast_job *j) {
    rpi_step_terms *x = j->x;
    bool is_shared = j->l->tensor > 1;
    x->products_s = products_s(j, FORWARD);
    x->attention_s = attention_s(j, FORWARD);
    x->memory_s = rest_s(j, FORWARD);
    if (is_shared)
        x->sums_s = 2 * tensor_sum_s(j, j->tokens * (double)j->l->model.hidden *
                                            rpi_forecast_crossing_bytes(j));
    x->keys_s = keys_s(j);
    int started = (is_shared ? 2 : 0) + (j->l->context > 1 ? 1 : 0);
    x->start_s = rpi_forecast_fact(j, RPI_FACT_LAYER_HOST) +
                 started * rpi_forecast_fact(j, RPI_FACT_SUM_HOST) + softmax_host_s(j);
    double device_s = x->products_s + x->attention_s + x->memory_s;
    x->forward_s = rpi_forecast_longer(device_s + x->sums_s + x->keys_s, x->start_s);
    bool is_again = j->l->recompute == RPI_RECOMPUTE_FULL;
    x->backward_s = rpi_forecast_longer(
        backward_s(j) + (1 - rpi_forecast_fact(j, RPI_FACT_SUM_HIDDEN)) * x->sums_s +
            (is_again ? 1 : 2) * x->keys_s,
        x->start_s);
    if (is_again) x->again_s = x->forward_s; /* with its gather */
    if (j->l->recompute == RPI_RECOMPUTE_SELECTIVE && !j->l->fused_attention)
        x->again_s = x->attention_s + rpi_forecast_memory_s(j, scores_bytes(j->l));
}

double rpi_layer_sum_passes(const rpi_forecast_job *j) {
    double again = j->l->recompute == RPI_RECOMPUTE_FULL ? 1 : 0;
    return 2 - rpi_forecast_fact(j, RPI_FACT_SUM_HIDDEN) + again;
}

/* The loss passes over the logits, in 4 bytes, six times. */
double rpi_head_time_s(const rpi_forecast_job *j) {
    const rpi_measured_rates *r = j->m->rates;
    double v = (double)j->l->model.vocabulary / j->t, h = (double)j->l->model.hidden;
    const double at[] = {j->tokens, v, h}, flops = 2 * j->tokens * v * h;
    if (r && r->head[FORWARD].count && r->head[BACKWARD].count)
        return flops / rpi_rate_at(&r->head[FORWARD], at) +
               2 * flops / rpi_rate_at(&r->head[BACKWARD], at);
    return matrix_s(j, FORWARD, v, h) + matrix_s(j, BACKWARD, v, h) +
           rpi_forecast_memory_s(j, 6 * 4 * j->tokens * v);
}

double rpi_layer_weights_s(const rpi_forecast_job *j) {
    return products_s(j, WEIGHTS);
}
