#include "plan/foresight/gradient_time.h"

#include "plan/foresight/group_sums.h"

#include <math.h>

double rpi_gradients_added_s(const rpi_forecast_job *j, int64_t stage) {
    const rpi_precision *p = j->l->precision;
    bool is_separate = p->gradient <= p->activation && j->l->zero < 3 && !j->m->rates;
    return is_separate
               ? rpi_forecast_memory_s(j, 3 * p->gradient * rpi_stage_parameters(j->l, stage))
               : 0;
}

static double most_parameters(const rpi_training_layout *l) {
    double most = 0;
    for (int64_t stage = 0; stage < l->pipeline; stage++)
        most = fmax(most, rpi_stage_parameters(l, stage));
    return most;
}

/* The time to scatter gradients, which are encoded between hosts. */
static double scatter_s(const rpi_forecast_job *j, const rpi_group *g, double elements) {
    double bytes = elements * j->l->precision->gradient;
    double between = j->m->codec_bytes > 0 ? elements * j->m->codec_bytes : bytes;
    return rpi_group_half_s(j->m, g, bytes, between);
}

static double gather_s(const rpi_forecast_job *j, const rpi_group *g, double elements,
                       double each) {
    double between = j->m->codec_bytes > 0 && j->l->zero == 0 ? j->m->codec_bytes : each;
    return rpi_group_half_s(j->m, g, elements * each, elements * between);
}

/* The time to encode and decode, beside the link's. */
static double codec_s(const rpi_forecast_job *j, const rpi_group *g, double elements) {
    if (j->m->codec_bytes == 0 || g->hosts == 1) return 0;
    double each = j->l->precision->gradient + j->m->codec_bytes;
    if (j->m->codec_s > 0) return elements * j->m->codec_s / (double)g->inside;
    return 2 * rpi_forecast_memory_s(j, elements * each / (double)g->inside);
}

/* ZeRO 3 gathers a layer while the one before computes, once forward and once backward, and
 * scatters after it, in each micro-batch. */
static double zero3_exposed_s(const rpi_forecast_job *j, const rpi_group *g, double elements) {
    rpi_step_terms *x = j->x;
    double m = (double)x->micro_batches, each = j->l->precision->activation;
    double one = 2 * gather_s(j, g, elements, each) + scatter_s(j, g, elements) + x->codec_s;
    x->data_s = m * one;
    x->hidden_s = m * x->slot_s;
    return m * (rpi_forecast_longer(x->slot_s, one) - x->slot_s) +
           one / (double)j->l->model.layers;
}

/* The time that the host's cores need for sums of gradients, which is never hidden, since the
 * cores compute as well. */
static double core_s(const rpi_forecast_job *j, const rpi_group *g, double elements) {
    const rpi_measured_rates *r = j->m->rates;
    double bytes = elements * j->l->precision->gradient;
    if (!r) return 0;
    if (g->hosts > 1 && j->m->codec_bytes > 0) bytes = elements * j->m->codec_bytes;
    double bucket = fmin(bytes, fmax(rpi_forecast_fact(j, RPI_FACT_BUCKET), 1));
    return r->sums.count ? bytes / rpi_rate_at(&r->sums, &bucket) : 0;
}

/* The share of a bucket. The first one is summed when the backward pass has filled it, the last
 * one when the pass has ended (Li et al. 2020, arXiv:2006.15704). */
static double bucket_share(const rpi_forecast_job *j, double bytes) {
    double bucket = rpi_forecast_fact(j, RPI_FACT_BUCKET);
    return bucket > 0 ? fmin(1, bucket / bytes) : 0;
}

double rpi_gradients_exposed_s(const rpi_forecast_job *j) {
    rpi_step_terms *x = j->x;
    const rpi_precision *p = j->l->precision;
    if (rpi_layout_sharers(j->l) == 1) return 0;
    rpi_group g = rpi_group_of(j->m, rpi_layout_sharers(j->l), j->l->tensor);
    double n = most_parameters(j->l), m = j->l->zero == 2 ? (double)x->micro_batches : 1;
    x->data_hosts = g.hosts;
    x->data_bytes = n * p->gradient;
    x->codec_s = codec_s(j, &g, n);
    if (j->l->zero == 3) return zero3_exposed_s(j, &g, n);
    double back_s = gather_s(j, &g, n, j->l->zero ? fmin(p->weight, 4) : p->gradient);
    double link_s = m * scatter_s(j, &g, n) + back_s, busy_s = 0;
    if (j->m->rates) {
        if (g.hosts == 1) link_s = 0; /* inside a host the cores move the data */
        busy_s = m * core_s(j, &g, n) + x->codec_s;
    } else {
        link_s += x->codec_s;
    }
    x->data_s = link_s + busy_s;
    double share = bucket_share(j, x->data_bytes);
    x->hidden_s = m * rpi_forecast_fact(j, RPI_FACT_OVERLAP) * (double)x->layers *
                  x->backward_s * (1 - share);
    return busy_s + fmax(link_s * share, link_s - x->hidden_s);
}

double rpi_gradients_looked_at_s(const rpi_forecast_job *j) {
    const rpi_measured_rates *r = j->m->rates;
    double bytes = most_parameters(j->l) * 4;
    return r && r->gradients.count ? bytes / rpi_rate_at(&r->gradients, &bytes) : 0;
}

double rpi_optimizer_time_s(const rpi_forecast_job *j) {
    const rpi_precision *p = j->l->precision;
    double n = most_parameters(j->l) / (j->l->zero ? (double)rpi_layout_sharers(j->l) : 1);
    double cleared = j->m->rates ? 0 : 4; /* passes over the gradients */
    double bytes = n * ((1 + cleared) * p->gradient + p->weight + 2 * p->optimizer);
    const rpi_measured_rates *r = j->m->rates;
    return r && r->optimizer.count ? bytes / rpi_rate_at(&r->optimizer, &bytes)
                                   : rpi_forecast_memory_s(j, bytes);
}
