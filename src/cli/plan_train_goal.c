/* The hosts for a deadline, or for a budget; and from which rate of a link a codec shortens a
 * step. */
#include "base/memory.h"
#include "base/status.h"
#include "cli/plan_train.h"
#include "plan/foresight/break_even.h"
#include "redpoll/codec.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Up to this number every number of hosts is tried; beyond, powers of two and three quarters of
 * them. */
enum { EVERY = 16 };
/* Rates that are looked at, bytes a second: 80 kbit/s to 80 Tbit/s. */
#define LEAST_RATE 1e4
#define MOST_RATE  1e13

/* ---- hosts ---- */

int64_t rpi_train_more_hosts(int64_t hosts, int64_t most) {
    int64_t power = 1, next;
    while (power * 2 <= hosts) power *= 2;
    next = hosts < EVERY ? hosts + 1 : hosts == power ? power + power / 2 : 2 * power;
    return next < most ? next : most;
}

static bool is_better(const rpi_train_goal *g, const rpi_train_row *a, const rpi_train_row *b) {
    double first = g->is_budget ? a->hours - b->hours : a->cost - b->cost;
    double then = g->is_budget ? a->cost - b->cost : a->hours - b->hours;
    return first != 0 ? first < 0 : then < 0;
}

static void add_row(rpi_train_goal *g, int index, int64_t hosts, const rpi_train_offer *o) {
    const rpi_candidate *best = &o->found.best[0];
    if (g->count == RPI_TRAIN_ROWS) return;
    rpi_train_row *row = &g->rows[g->count];
    *row = (rpi_train_row){.offer = index,
                           .hosts = hosts,
                           .layout = best->layout,
                           .hours = o->bill.hours,
                           .high_hours = o->bill.high_hours,
                           .cost = o->bill.cost,
                           .tokens_per_s = best->forecast.tokens_per_s};
    row->meets = (g->is_budget ? row->cost : row->hours) <= g->limit;
    if (row->meets && (g->best < 0 || is_better(g, row, &g->rows[g->best]))) g->best = g->count;
    g->count++;
}

/* Leaves out numbers of hosts for which no layout is legal, or fits. */
static rp_status add_offer(rpi_train_planner plan, void (*close)(rpi_train_offer *offer),
                           void *context, int index, int64_t most, rpi_train_goal *g) {
    rpi_train_offer *o = NULL;
    RP_TRY(rpi_alloc(sizeof *o, "a training", &o));
    rp_status status = RP_OK;
    for (int64_t hosts = 1;; hosts = rpi_train_more_hosts(hosts, most)) {
        *o = (rpi_train_offer){0};
        status = plan(context, index, hosts, o);
        if (status == RP_OK) add_row(g, index, hosts, o);
        close(o);
        if ((status != RP_OK && status != RP_INVALID) || hosts == most) break;
    }
    rpi_free(o);
    return status == RP_INVALID ? RP_OK : status;
}

rp_status rpi_train_goal_find(rpi_train_planner plan, void (*close)(rpi_train_offer *offer),
                              void *context, const rpi_train_offer *offers, int count,
                              rpi_train_goal *g) {
    g->best = -1;
    for (int i = 0; i < count; i++)
        RP_TRY(add_offer(plan, close, context, i, offers[i].said.hosts, g));
    return RP_OK;
}

/* ---- a codec ---- */

typedef struct comparison {
    const rpi_training_layout *layout;
    rpi_machine exact, coded;
} comparison;

static rp_status codec_is_faster(void *context, double bytes_per_s, bool *out) {
    comparison *c = context;
    rpi_forecast exact, coded;
    c->exact.link_bytes_s = c->coded.link_bytes_s = bytes_per_s;
    RP_TRY(rpi_forecast_step(c->layout, &c->exact, &exact));
    RP_TRY(rpi_forecast_step(c->layout, &c->coded, &coded));
    *out = coded.step_s < exact.step_s;
    return RP_OK;
}

const char *rpi_train_codec_of(const rpi_train_offer *o) {
    return o->planned.machine.codec_bytes > 0 ? o->said.codec : "q4";
}

rp_status rpi_train_codec_pays_below(const rpi_train_offer *o, double *out) {
    const rpi_machine *m = &o->planned.machine;
    comparison c = {.layout = &o->found.best[0].layout, .exact = *m, .coded = *m};
    rpi_plan_training said = o->said;
    rpi_planned_training with = {.account = o->planned.account, .machine = *m};
    *out = -1;
    if (o->found.best[0].forecast.terms.data_hosts < 2) return RP_OK;
    said.codec = rpi_train_codec_of(o);
    RP_TRY(rpi_plan_training_codec(&said, &with));
    c.coded = with.machine;
    c.exact.codec_bytes = c.exact.codec_s = 0;
    return rpi_break_even(codec_is_faster, &c, LEAST_RATE, MOST_RATE, out);
}

/* ---- for people ---- */

static const char *limit_text(const rpi_train_goal *g, char text[64]) {
    if (g->is_budget)
        snprintf(text, 64, "a budget of %.6g", g->limit);
    else
        snprintf(text, 64, "%.4g hours", g->limit);
    return text;
}

static void print_row(const rpi_train_offer *offers, const rpi_train_goal *g, int i,
                      bool has_context) {
    const rpi_train_row *r = &g->rows[i];
    printf("%c %-16s  %6lld  %4lld", i == g->best ? '*' : ' ',
           r->offer ? offers[r->offer].name : "(as it is)", (long long)r->hosts,
           (long long)r->layout.tensor);
    if (has_context) printf("  %4lld", (long long)r->layout.context);
    printf("  %4lld  %5lld  %10.4g  %10.4g  %10.4g  %10.5g  %s\n",
           (long long)r->layout.pipeline, (long long)r->layout.data, r->tokens_per_s, r->hours,
           r->high_hours, r->cost,
           r->meets       ? ""
           : g->is_budget ? "too dear"
                          : "too late");
}

void rpi_train_goal_print(const rpi_train_offer *offers, const rpi_train_goal *g) {
    char text[64];
    printf("\nwithin %s, on as many hosts as there are, or fewer:\n", limit_text(g, text));
    bool has_context = false;
    for (int i = 0; i < g->count; i++) has_context |= g->rows[i].layout.context > 1;
    printf("  %-16s  %6s  %4s%s  %4s  %5s  %10s  %10s  %10s  %10s\n", "", "hosts", "tp",
           has_context ? "    cp" : "", "pp", "dp", "tokens/s", "hours", "9 of 10 to", "cost");
    for (int i = 0; i < g->count; i++) print_row(offers, g, i, has_context);
    if (g->best < 0)
        printf("nothing is within %s: more hosts, other ones, or a smaller training\n", text);
    else
        printf("* the %s within %s%s\n", g->is_budget ? "fastest" : "cheapest", text,
               !g->is_budget && g->rows[g->best].high_hours > g->limit ? "; not 9 of 10 times"
                                                                       : "");
}
