#include "plan/pipelines/pipeline_price.h"

#include "base/memory.h"
#include "base/status.h"
#include "plan/event_heap.h"

#include <math.h>

enum { ENDED, LEFT, ARRIVED }; /* events; each of a pass, by its number */

/* One way of an interface. */
typedef struct way {
    double free_s;
} way;

typedef struct run {
    const rpi_pipeline_orders *o;
    const rpi_pipeline_model *model;
    bool links_cost;
    rpi_pipeline_price *price;
    rpi_event_heap heap;
    double *arrived_s; /* [passes] its result, at the stage that needs it; negative: not yet */
    int *at;           /* [stages] passes that it has begun */
    bool *busy;        /* [stages] */
    double *free_s;    /* [stages] when its last pass ended */
    way *outward, *inward; /* [2 stages] of hosts, and then of stages inside theirs */
} run;

/* ---- what things take ---- */

static double share_of(const rpi_pipeline_orders *o, const rpi_pipeline_model *model,
                       const double *of, int pass) {
    if (!of) return 0;
    int stages = o->shape.stages, stage = rpi_pipeline_stage_of(o, pass);
    if (model->entries == stages) return of[stage] / o->shape.chunks;
    return of[rpi_pipeline_part_of(o, pass)];
}

static double pass_s(const run *r, int pass) {
    const rpi_pipeline_model *m = r->model;
    int kind = r->o->passes[pass].kind;
    if (kind == RPI_PASS_FORWARD) return share_of(r->o, m, m->forward_s, pass);
    if (kind == RPI_PASS_BACKWARD && m->whole_s) return share_of(r->o, m, m->whole_s, pass);
    double inputs_s = share_of(r->o, m, m->inputs_s, pass);
    double weights_s = share_of(r->o, m, m->weights_s, pass);
    return kind == RPI_PASS_INPUTS    ? inputs_s
           : kind == RPI_PASS_WEIGHTS ? weights_s
                                      : inputs_s + weights_s;
}

static int host_of(const run *r, int stage) {
    return r->model->host_of ? r->model->host_of[stage] : stage;
}

typedef struct crossing {
    way *out, *in;
    double sending_s, latency_s;
} crossing;

static crossing crossing_of(run *r, int from, int to) {
    const rpi_pipeline_model *m = r->model;
    bool inside = host_of(r, from) == host_of(r, to);
    int stages = r->o->shape.stages;
    double rate = inside ? m->inside_bytes_per_s : m->bytes_per_s;
    int out = inside ? stages + from : host_of(r, from);
    int in = inside ? stages + to : host_of(r, to);
    crossing c = {.out = &r->outward[out], .in = &r->inward[in]};
    if (!r->links_cost) return c;
    c.sending_s = rate > 0 ? m->border_bytes / rate : 0;
    c.latency_s = inside ? m->inside_latency_s : m->latency_s;
    return c;
}

/* When something that may pass from `now` on has passed. */
static double pass_through(way *w, double now, double takes_s) {
    double start = fmax(now, w->free_s);
    w->free_s = start + takes_s;
    return start;
}

/* ---- events ---- */

static rp_status put(run *r, double time_s, int what, int pass) {
    return rpi_event_put(&r->heap, (rpi_event){.time_s = time_s, .what = what, .step = pass});
}

/* Stages run their passes in order, so that an input of their own is always there. */
static bool has_input(const run *r, int stage, int pass) {
    int input = rpi_pipeline_input(r->o, pass);
    if (input < 0 || rpi_pipeline_stage_of(r->o, input) == stage)
        return input < 0 || input < stage * r->o->each + r->at[stage];
    return r->arrived_s[input] >= 0;
}

static void note_wait(run *r, int stage, int pass, double now) {
    int input = rpi_pipeline_input(r->o, pass);
    if (input < 0 || rpi_pipeline_stage_of(r->o, input) == stage) return;
    double since = fmax(r->free_s[stage], r->price->spans[input].end_s);
    r->price->stage[stage].link_s += fmax(0, now - since);
}

static rp_status begin_next(run *r, int stage, double now) {
    if (r->busy[stage] || r->at[stage] == r->o->each) return RP_OK;
    int pass = stage * r->o->each + r->at[stage];
    if (!has_input(r, stage, pass)) return RP_OK;
    double takes_s = pass_s(r, pass);
    note_wait(r, stage, pass, now);
    r->at[stage]++;
    r->busy[stage] = true;
    r->price->spans[pass] = (rpi_pass_span){now, now + takes_s};
    r->price->stage[stage].busy_s += takes_s;
    return put(r, now + takes_s, ENDED, pass);
}

static rp_status on_ended(run *r, int pass, double now) {
    int stage = rpi_pipeline_stage_of(r->o, pass), receiver = rpi_pipeline_receiver(r->o, pass);
    r->busy[stage] = false;
    r->free_s[stage] = now;
    if (receiver >= 0) {
        crossing c = crossing_of(r, stage, rpi_pipeline_stage_of(r->o, receiver));
        r->price->messages++;
        RP_TRY(put(r, pass_through(c.out, now, c.sending_s) + c.latency_s, LEFT, pass));
    }
    return begin_next(r, stage, now);
}

static rp_status on_left(run *r, int pass, double now) {
    int receiver = rpi_pipeline_receiver(r->o, pass);
    crossing c = crossing_of(r, rpi_pipeline_stage_of(r->o, pass),
                             rpi_pipeline_stage_of(r->o, receiver));
    return put(r, pass_through(c.in, now, c.sending_s) + c.sending_s, ARRIVED, pass);
}

static rp_status on_arrived(run *r, int pass, double now) {
    int receiver = rpi_pipeline_receiver(r->o, pass);
    r->arrived_s[pass] = now;
    return begin_next(r, rpi_pipeline_stage_of(r->o, receiver), now);
}

static rp_status run_events(run *r) {
    rpi_event event;
    for (int stage = 0; stage < r->o->shape.stages; stage++) RP_TRY(begin_next(r, stage, 0));
    while (rpi_event_take(&r->heap, &event)) {
        if (event.what == ENDED) RP_TRY(on_ended(r, event.step, event.time_s));
        if (event.what == LEFT) RP_TRY(on_left(r, event.step, event.time_s));
        if (event.what == ARRIVED) RP_TRY(on_arrived(r, event.step, event.time_s));
    }
    for (int stage = 0; stage < r->o->shape.stages; stage++)
        if (r->at[stage] < r->o->each)
            return RP_FAIL(INTERNAL, "%s: stage %d waits for ever", r->o->kind->name, stage);
    return RP_OK;
}

/* ---- a run ---- */

static rp_status open_run(run *r) {
    size_t stages = (size_t)r->o->shape.stages, passes = (size_t)r->o->count;
    RP_TRY(rpi_alloc_array(passes, sizeof *r->arrived_s, "a simulation", &r->arrived_s));
    RP_TRY(rpi_alloc_array(stages, sizeof *r->at, "a simulation", &r->at));
    RP_TRY(rpi_alloc_array(stages, sizeof *r->busy, "a simulation", &r->busy));
    RP_TRY(rpi_alloc_array(stages, sizeof *r->free_s, "a simulation", &r->free_s));
    RP_TRY(rpi_alloc_array(2 * stages, sizeof *r->outward, "a simulation", &r->outward));
    RP_TRY(rpi_alloc_array(2 * stages, sizeof *r->inward, "a simulation", &r->inward));
    for (size_t i = 0; i < passes; i++) r->arrived_s[i] = -1;
    return RP_OK;
}

static void close_run(run *r) {
    rpi_event_heap_free(&r->heap);
    rpi_free(r->arrived_s);
    rpi_free(r->at);
    rpi_free(r->busy);
    rpi_free(r->free_s);
    rpi_free(r->outward);
    rpi_free(r->inward);
}

static void sum_up(const rpi_pipeline_orders *o, rpi_pipeline_price *p) {
    double busy_s = 0;
    for (int i = 0; i < p->passes; i++) p->time_s = fmax(p->time_s, p->spans[i].end_s);
    for (int s = 0; s < p->stages; s++) {
        p->stage[s].first_s = p->spans[s * o->each].start_s;
        p->stage[s].last_s = p->spans[(s + 1) * o->each - 1].end_s;
        p->stage[s].idle_s = fmax(0, p->time_s - p->stage[s].busy_s);
        busy_s += p->stage[s].busy_s;
    }
    p->bubble = p->time_s > 0 ? fmax(0, 1 - busy_s / (p->time_s * p->stages)) : 0;
}

static rp_status simulate(const rpi_pipeline_orders *o, const rpi_pipeline_model *model,
                          bool links_cost, rpi_pipeline_price *out) {
    rpi_pipeline_price p = {.stages = o->shape.stages, .passes = o->count};
    run r = {.o = o, .model = model, .links_cost = links_cost, .price = &p};
    *out = (rpi_pipeline_price){0};
    rp_status status = rpi_alloc_array((size_t)p.stages, sizeof *p.stage, "a price", &p.stage);
    if (status == RP_OK)
        status = rpi_alloc_array((size_t)p.passes, sizeof *p.spans, "a price", &p.spans);
    if (status == RP_OK) status = open_run(&r);
    if (status == RP_OK) status = run_events(&r);
    close_run(&r);
    if (status == RP_OK) {
        sum_up(o, &p);
        *out = p;
    } else {
        rpi_pipeline_price_free(&p);
    }
    return status;
}

void rpi_pipeline_price_free(rpi_pipeline_price *price) {
    rpi_free(price->stage);
    rpi_free(price->spans);
    *price = (rpi_pipeline_price){0};
}

/* ---- memory: by the order alone ---- */

static void count_kept(const rpi_pipeline_orders *o, const rpi_pipeline_model *model, int stage,
                       rpi_stage_price *price) {
    int kept = 0;
    double bytes = 0;
    for (int k = 0; k < o->each; k++) {
        int pass = stage * o->each + k, kind = o->passes[pass].kind;
        double all = share_of(o, model, model->kept_bytes, pass), late = all;
        if (model->weights_bytes) late = share_of(o, model, model->weights_bytes, pass);
        if (kind == RPI_PASS_FORWARD) kept++, bytes += all;
        if (kept > price->kept) price->kept = kept;
        price->kept_bytes = fmax(price->kept_bytes, bytes);
        if (kind == RPI_PASS_INPUTS) bytes -= all - late;
        if (kind == RPI_PASS_WEIGHTS) kept--, bytes -= late;
        if (kind == RPI_PASS_BACKWARD) kept--, bytes -= all;
    }
}

/* ---- the whole ---- */

static rp_status check_number(const char *what, double value) {
    if (value >= 0 && isfinite(value)) return RP_OK;
    return RP_FAIL(INVALID, "%s of a pipeline is negative or no number", what);
}

static rp_status check_numbers(const char *what, const double *values, int count) {
    for (int i = 0; values && i < count; i++) RP_TRY(check_number(what, values[i]));
    return RP_OK;
}

static rp_status check_model(const rpi_pipeline_orders *o, const rpi_pipeline_model *m) {
    int stages = o->shape.stages, parts = stages * o->shape.chunks;
    if (m->entries != stages && m->entries != parts)
        return RP_FAIL(INVALID, "%d times of a pipeline; %d stages and %d parts have them",
                       m->entries, stages, parts);
    RP_TRY(check_numbers("a forward time", m->forward_s, m->entries));
    RP_TRY(check_numbers("a time for inputs", m->inputs_s, m->entries));
    RP_TRY(check_numbers("a time for weights", m->weights_s, m->entries));
    RP_TRY(check_numbers("a time for a whole backward pass", m->whole_s, m->entries));
    RP_TRY(check_numbers("what is kept", m->kept_bytes, m->entries));
    RP_TRY(check_numbers("what is kept for weights", m->weights_bytes, m->entries));
    RP_TRY(check_number("a message", m->border_bytes));
    RP_TRY(check_number("a rate", m->bytes_per_s));
    RP_TRY(check_number("a latency", m->latency_s));
    RP_TRY(check_number("a rate inside a host", m->inside_bytes_per_s));
    return check_number("a latency inside a host", m->inside_latency_s);
}

rp_status rpi_pipeline_price_make(const rpi_pipeline_orders *o, const rpi_pipeline_model *model,
                                  rpi_pipeline_price *out) {
    rpi_pipeline_price price, ideal;
    *out = (rpi_pipeline_price){0};
    RP_TRY(check_model(o, model));
    RP_TRY(simulate(o, model, false, &ideal));
    double ideal_s = ideal.time_s;
    rpi_pipeline_price_free(&ideal);
    RP_TRY(simulate(o, model, true, &price));
    price.exposed_s = fmax(0, price.time_s - ideal_s);
    for (int s = 0; s < price.stages; s++) count_kept(o, model, s, &price.stage[s]);
    *out = price;
    return RP_OK;
}
