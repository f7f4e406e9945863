/* `redpoll plan train --spot`: a training on nodes that come and are taken back, by a trace. */
#include "base/memory.h"
#include "base/status.h"
#include "cli/numbers.h"
#include "cli/plan_train.h"
#include "plan/foresight/interval_rule.h"

#include <math.h>
#include <stdio.h>

enum { RESTARTS, ELASTIC };

/* ---- how fast fewer hosts are ---- */

/* The best layout with so many replicas. Each takes as many micro-batches as keep the batch as
 * large as before, or a little larger. */
static rpi_training_layout with_replicas(const rpi_training_layout *best, int64_t replicas) {
    rpi_training_layout l = *best;
    int64_t one = replicas * l.micro_batch, turn = l.interleave > 1 ? l.pipeline : 1;
    int64_t micro_batches = (best->global_batch + one - 1) / one;
    l.data = replicas;
    l.global_batch = (micro_batches + turn - 1) / turn * turn * one;
    return l;
}

/* Tokens a second; 0: so few hosts cannot hold it. */
static double tokens_per_s(const rpi_train_offer *o, int64_t hosts) {
    const rpi_training_layout *best = &o->found.best[0].layout;
    int64_t ranks = hosts * o->planned.machine.ranks_per_host;
    for (int64_t n = ranks * best->data / rpi_layout_ranks(best); n > 0; n--) {
        rpi_training_layout l = with_replicas(best, n);
        rpi_forecast f;
        if (rpi_layout_check(&l) == RP_OK &&
            rpi_forecast_step(&l, &o->planned.machine, &f) == RP_OK)
            return f.fits ? f.tokens_per_s : 0;
    }
    return 0;
}

/* Fills `pace` for every number of nodes in the trace. */
static void find_paces(const rpi_train_offer *o, const rpi_spot_trace *t, double *pace) {
    int64_t hosts = o->said.hosts;
    for (int64_t k = 0; k <= hosts; k++) pace[k] = k == hosts ? 1 : -1;
    pace[0] = 0;
    for (int i = 0; i < t->count; i++) {
        int64_t alive = t->changes[i].alive < hosts ? t->changes[i].alive : hosts;
        if (pace[alive] < 0)
            pace[alive] = tokens_per_s(o, alive) / o->found.best[0].forecast.tokens_per_s;
    }
}

/* ---- a way to train ---- */

typedef struct job {
    const rpi_train_offer *offer;
    const rpi_train_spot_said *said;
    rpi_spot_trace trace;
    rpi_spot_facts facts;
    rpi_spot_rules rules; /* of one that restarts */
} job;

static const char *const names[RPI_TRAIN_SPOT_WAYS] = {"restarts", "elastic"};

static rp_status refuse_unfinished(const job *j) {
    const rpi_training_layout *l = &j->offer->found.best[0].layout;
    long long per_host = j->offer->planned.machine.ranks_per_host;
    long long needed = (rpi_layout_ranks(l) / l->data + per_host - 1) / per_host;
    return RP_FAIL(INVALID,
                   "with the nodes of %s the training is never done: there are %lld at most, a "
                   "replica takes %lld, and %.3g of them are lost in an hour; less --tp and "
                   "--pp, a lower --least%s",
                   j->said->trace, (long long)j->facts.most_nodes, needed,
                   (double)j->facts.lost / j->facts.seconds * 3600,
                   j->said->is_elastic ? "" : ", a quicker --restart, or --elastic");
}

static double hours_for(const job *j, const rpi_spot_rules *rules, double work_s) {
    rpi_spot_finish finish;
    return rpi_spot_finish_find(&j->trace, rules, work_s, &finish) ? finish.seconds / 3600
                                                                   : INFINITY;
}

static void add_money(const job *j, rpi_train_spot_way *w) {
    double price = j->said->spot_price >= 0 ? j->said->spot_price : j->said->price;
    double work_node_hours = j->said->work_s / 3600 * (double)j->offer->said.hosts;
    w->cost = price >= 0 ? price * w->node_hours : -1;
    w->pays_below = j->said->price >= 0 ? j->said->price * work_node_hours / w->node_hours : -1;
}

/* A training that is never done has 0 hours. */
static void plan_way(const job *j, int way, rpi_train_spot_way *w) {
    const rpi_forecast *f = &j->offer->found.best[0].forecast;
    rpi_spot_rules rules = j->rules;
    rules.is_elastic = way == ELASTIC;
    *w = (rpi_train_spot_way){.name = names[way], .interval_s = rules.interval_s};
    if (!rpi_spot_finish_find(&j->trace, &rules, j->said->work_s, &w->finish)) return;
    w->hours = w->finish.seconds / 3600;
    w->low_hours = hours_for(j, &rules, j->said->work_s * f->low_s / f->step_s);
    w->high_hours = hours_for(j, &rules, j->said->work_s * f->high_s / f->step_s);
    double spare = j->said->pays_spares ? 0 : w->finish.account.spare;
    w->node_hours = (w->finish.account.all - spare) / 3600;
    w->goodput = j->said->work_s / w->finish.seconds;
    add_money(j, w);
}

/* The interval between saves: as the user says, or the best for failures at random, in whole
 * steps. */
static double interval_of(const job *j) {
    const char *said = j->said->words.interval;
    rpi_failures none = {.save_s = j->rules.save_s};
    if (said) return rpi_spot_span(said);
    return rpi_interval_fit(&none, rpi_spot_exact_interval(&j->trace, j->rules),
                            j->offer->found.best[0].forecast.step_s);
}

static rp_status plan_ways(job *j, double *pace, rpi_train_spot *out) {
    const rpi_train_spot_said *s = j->said;
    find_paces(j->offer, &j->trace, pace);
    j->rules = rpi_spot_rules_of(&s->words, j->offer->said.hosts, s->save_s, s->restart_s);
    j->rules.pace = pace;
    j->rules.interval_s = interval_of(j);
    *out = (rpi_train_spot){.chosen = s->is_elastic ? ELASTIC : RESTARTS,
                            .trace_hours = j->facts.seconds / 3600,
                            .work_hours = s->work_s / 3600,
                            .price = s->price,
                            .spot_price = s->spot_price,
                            .notice_fits = j->rules.notice_fits};
    for (int i = 0; i < RPI_TRAIN_SPOT_WAYS; i++) plan_way(j, i, &out->ways[i]);
    return out->ways[out->chosen].hours > 0 ? RP_OK : refuse_unfinished(j);
}

rp_status rpi_train_spot_plan(const rpi_train_offer *o, const rpi_train_spot_said *said,
                              rpi_train_spot *out) {
    job j = {.offer = o, .said = said};
    double *pace = NULL;
    RP_TRY(rpi_spot_trace_read(said->trace, said->words.least, &j.trace, &j.facts));
    rp_status status =
        rpi_alloc_array((size_t)o->said.hosts + 1, sizeof *pace, "paces of worlds", &pace);
    if (status == RP_OK) status = plan_ways(&j, pace, out);
    rpi_free(pace);
    rpi_free(j.trace.changes);
    return status;
}

/* ---- for people ---- */

static void print_way(const rpi_train_spot *s, int i) {
    const rpi_train_spot_way *w = &s->ways[i];
    const rpi_spot_account *a = &w->finish.account;
    char cost[RPI_NUMBER_BYTES] = "-";
    printf("%c %-9s", i == s->chosen ? '*' : ' ', w->name);
    if (!(w->hours > 0)) {
        printf("  never done\n");
        return;
    }
    if (w->cost >= 0) snprintf(cost, sizeof cost, "%.5g", w->cost);
    printf("  %10.1f s  %8.4g  %8.4g to %-8.4g  %6.2f %%  %6.2f %%  %6.2f %%  %10.5g  %10s\n",
           w->interval_s, w->hours, w->low_hours, w->high_hours, 100 * w->goodput,
           100 * a->lost / a->all, 100 * (a->spare + a->waiting) / a->all, w->node_hours, cost);
}

void rpi_train_spot_print(const rpi_train_spot *s) {
    const rpi_train_spot_way *w = &s->ways[s->chosen];
    printf("\non spot nodes, by a trace of %.4g h, played %.4g times:\n", s->trace_hours,
           w->finish.turns);
    printf("  %-9s  %12s  %8s  %20s  %8s  %8s  %8s  %10s  %10s\n", "", "work between", "hours",
           "9 of 10 times", "goodput", "lost", "idle", "node hours", "cost");
    for (int i = 0; i < RPI_TRAIN_SPOT_WAYS; i++) print_way(s, i);
    printf("on hosts that are never taken back it takes %.4g h", s->work_hours);
    if (s->price >= 0 && s->spot_price >= 0)
        printf(", %.5g at %.4g a node and hour", w->pays_below * w->node_hours, s->price);
    putchar('\n');
    if (s->price >= 0 && s->spot_price >= 0)
        printf("spot nodes are cheaper below %.4g a node and hour\n", w->pays_below);
}
