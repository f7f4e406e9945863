#include "plan/foresight/pipeline_steps.h"

#include "base/memory.h"
#include "base/status.h"
#include "plan/pipelines/pipeline_price.h"

#include <math.h>

enum { MOST_PASSES = 1 << 19, TURNS = 3, SLOPE = 1 /* micro-batches a stage */ };

double rpi_pipeline_steps_bound(const rpi_pipeline_steps *s) {
    double before_s = 0, most_s = 0, chunks = (double)s->chunks;
    for (int64_t i = 0; i < s->stages; i++) {
        double own_s = s->forward_s[i] + s->backward_s[i];
        most_s = fmax(most_s, before_s / chunks + (double)s->micro_batches * own_s);
        before_s += own_s;
    }
    return most_s;
}

/* ---- stages that wait for what they send ---- */

/* The time for which a stage that sends to `to` is blocked. */
static double blocked_s(const rpi_pipeline_steps *s, const int *host_of, int64_t from,
                        int64_t to) {
    if (to < 0 || to >= s->stages) return 0;
    double rate = host_of[from] == host_of[to] ? s->inside_bytes_per_s : s->bytes_per_s;
    return s->blocks * (double)s->chunks * s->border_bytes / rate;
}

/* Adds it to `times`, forward and backward for all stages. If stages have chunks the last stage
 * also sends to the first. */
static void block(const rpi_pipeline_steps *s, const int *host_of, double *times) {
    int64_t p = s->stages;
    for (int64_t i = 0; i < p; i++) {
        int64_t next = s->chunks > 1 ? (i + 1) % p : i + 1;
        int64_t before = s->chunks > 1 ? (i + p - 1) % p : i - 1;
        times[i] = s->forward_s[i] + blocked_s(s, host_of, i, next);
        times[p + i] = s->backward_s[i] + blocked_s(s, host_of, i, before);
    }
}

/* ---- prices ---- */

typedef struct run {
    const rpi_pipeline_steps *steps;
    int *host_of;
    double *blocked;          /* times of stages, with the time that sends block them */
    double *inputs, *weights; /* halves of backward passes */
} run;

/* Takes the half for weights out of backward passes, if the kind splits them. */
static const double *split_weights(const run *r, const rpi_pipeline_kind *kind,
                                   const double *backward_s) {
    if (!kind->splits) return NULL;
    for (int64_t i = 0; i < r->steps->stages; i++) {
        double weights_s = r->steps->weights_share * r->steps->backward_s[i];
        r->weights[i] = weights_s;
        r->inputs[i] = fmax(0, backward_s[i] - weights_s);
    }
    return r->weights;
}

static rp_status price_orders(const run *r, const rpi_pipeline_kind *kind,
                              const rpi_pipeline_orders *orders, bool blocked,
                              rpi_pipeline_time *out) {
    const rpi_pipeline_steps *s = r->steps;
    rpi_pipeline_price found = {0};
    const double *backward_s = blocked ? r->blocked + s->stages : s->backward_s;
    const double *weights_s = split_weights(r, kind, backward_s);
    rpi_pipeline_model model = {.entries = (int)s->stages,
                                .forward_s = blocked ? r->blocked : s->forward_s,
                                .inputs_s = weights_s ? r->inputs : backward_s,
                                .weights_s = weights_s,
                                .border_bytes = s->border_bytes,
                                .host_of = r->host_of,
                                .bytes_per_s = s->bytes_per_s,
                                .latency_s = s->latency_s,
                                .inside_bytes_per_s = s->inside_bytes_per_s,
                                .inside_latency_s = s->inside_latency_s};
    RP_TRY(rpi_pipeline_price_make(orders, &model, &found));
    *out = (rpi_pipeline_time){found.time_s - found.exposed_s, found.time_s};
    rpi_pipeline_price_free(&found);
    return RP_OK;
}

static rp_status price(const run *r, int64_t micro_batches, rpi_pipeline_time *out) {
    const rpi_pipeline_steps *s = r->steps;
    const rpi_pipeline_kind *kind = NULL;
    rpi_pipeline_shape shape;
    rpi_pipeline_orders orders = {0};
    rpi_pipeline_time blocked;
    const char *usual = s->chunks > 1 ? "interleaved" : "1f1b";
    RP_TRY(rpi_pipeline_kind_find(s->schedule ? s->schedule : usual, &kind));
    RP_TRY(rpi_pipeline_shape_make(kind, s->stages, micro_batches,
                                   !kind->chunks ? s->chunks : 0, &shape));
    RP_TRY(rpi_pipeline_orders_build(kind, &shape, &orders));
    rp_status status = price_orders(r, kind, &orders, false, out);
    if (status == RP_OK && s->blocks > 0) {
        status = price_orders(r, kind, &orders, true, &blocked);
        out->time_s = blocked.time_s;
    }
    rpi_pipeline_orders_destroy(&orders);
    return status;
}

static rp_status simulate(const run *r, rpi_pipeline_time *out) {
    const rpi_pipeline_steps *s = r->steps;
    int64_t turn = s->stages, most = TURNS * turn;
    rpi_pipeline_time before;
    RP_TRY(price(r, s->micro_batches < most ? s->micro_batches : most, out));
    if (s->micro_batches <= most) return RP_OK;
    RP_TRY(price(r, most - SLOPE * turn, &before));
    double more = (double)(s->micro_batches - most) / (double)(SLOPE * turn);
    out->ideal_s += more * (out->ideal_s - before.ideal_s);
    out->time_s += more * (out->time_s - before.time_s);
    return RP_OK;
}

rp_status rpi_pipeline_steps_time(const rpi_pipeline_steps *s, rpi_pipeline_time *out) {
    int64_t turns = s->micro_batches < TURNS * s->stages ? s->micro_batches : TURNS * s->stages;
    run r = {.steps = s};
    if (s->stages == 1 || 2 * turns * s->stages * s->chunks > MOST_PASSES) {
        out->ideal_s = out->time_s = rpi_pipeline_steps_bound(s);
        return RP_OK;
    }
    RP_TRY(
        rpi_alloc_array((size_t)s->stages, sizeof *r.host_of, "hosts of stages", &r.host_of));
    rp_status status = rpi_alloc_array(4 * (size_t)s->stages, sizeof *r.blocked,
                                       "times of stages", &r.blocked);
    for (int64_t i = 0; i < s->stages; i++)
        r.host_of[i] = (int)(s->stages_per_host ? i / s->stages_per_host : i);
    if (status == RP_OK) {
        r.inputs = r.blocked + 2 * s->stages;
        r.weights = r.blocked + 3 * s->stages;
        block(s, r.host_of, r.blocked);
        status = simulate(&r, out);
    }
    rpi_free(r.host_of);
    rpi_free(r.blocked);
    return status;
}
