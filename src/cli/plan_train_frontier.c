/* Layouts of a training that no other beats in time, memory and money. */
#include "base/memory.h"
#include "base/status.h"
#include "cli/numbers.h"
#include "cli/plan_train.h"

#include <stdio.h>

/* ---- which they are ---- */

static double rate(const rpi_train_choice *c) {
    return c->candidate.forecast.tokens_per_s;
}

/* Is `a` at least as good in everything? An equal one is, too. */
static bool beats(const rpi_train_choice *a, const rpi_train_choice *b) {
    return rate(a) >= rate(b) && a->hours <= b->hours && a->cost <= b->cost &&
           a->candidate.forecast.memory.all <= b->candidate.forecast.memory.all;
}

static rp_status add(rpi_train_frontier *f, const rpi_train_choice *c) {
    int left = 0;
    for (int i = 0; i < f->count; i++)
        if (beats(&f->choices[i], c)) return RP_OK;
    for (int i = 0; i < f->count; i++)
        if (!beats(c, &f->choices[i])) f->choices[left++] = f->choices[i];
    f->count = left;
    RP_TRY(rpi_grow_array((size_t)left, (size_t)left + 1, sizeof *f->choices, "layouts",
                          &f->choices));
    int place = f->count++;
    for (; place > 0 && rate(&f->choices[place - 1]) < rate(c); place--)
        f->choices[place] = f->choices[place - 1];
    f->choices[place] = *c;
    return RP_OK;
}

/* The costs of a training with only this layout. */
static rp_status bill(const rpi_train_whole *whole, const rpi_train_offer *o, int64_t layout,
                      bool has_price, rpi_train_choice *out) {
    rpi_train_offer one = *o;
    one.found.best = &o->found.best[layout];
    one.found.count = 1;
    RP_TRY(rpi_train_bill_make(whole, &one));
    out->candidate = o->found.best[layout];
    out->hours = one.bill.hours;
    out->high_hours = one.bill.high_hours;
    out->cost = has_price ? one.bill.cost : -1;
    return RP_OK;
}

static rp_status add_layouts(const rpi_train_whole *whole, int index, int64_t hosts,
                             const rpi_train_offer *o, rpi_train_frontier *f) {
    for (int i = 0; i < o->found.count; i++) {
        rpi_train_choice c = {.offer = index, .hosts = hosts};
        rp_status status = bill(whole, o, i, f->has_price, &c);
        if (status == RP_INVALID) continue; /* it is never done */
        if (status != RP_OK) return status;
        RP_TRY(add(f, &c));
    }
    return RP_OK;
}

/* Leaves out numbers of hosts for which no layout is legal, or fits. */
static rp_status add_offer(rpi_train_planner plan, void (*close)(rpi_train_offer *offer),
                           void *context, const rpi_train_whole *whole, int index, int64_t most,
                           rpi_train_frontier *f) {
    rpi_train_offer *o = NULL;
    RP_TRY(rpi_alloc(sizeof *o, "a training", &o));
    rp_status status = RP_OK;
    for (int64_t hosts = f->has_price ? 1 : most;; hosts = rpi_train_more_hosts(hosts, most)) {
        *o = (rpi_train_offer){0};
        status = plan(context, index, hosts, o);
        if (status == RP_OK) status = add_layouts(whole, index, hosts, o, f);
        close(o);
        if ((status != RP_OK && status != RP_INVALID) || hosts == most) break;
    }
    rpi_free(o);
    return status == RP_INVALID ? RP_OK : status;
}

rp_status rpi_train_frontier_find(rpi_train_planner plan, void (*close)(rpi_train_offer *offer),
                                  void *context, const rpi_train_whole *const *wholes,
                                  const rpi_train_offer *offers, int count,
                                  rpi_train_frontier *f) {
    f->has_price = true;
    for (int i = 0; i < count; i++) f->has_price &= offers[i].bill.cost >= 0;
    for (int i = 0; i < count; i++)
        RP_TRY(add_offer(plan, close, context, wholes[i], i, offers[i].said.hosts, f));
    return RP_OK;
}

/* ---- for people ---- */

static void print_choice(const rpi_train_offer *offers, const rpi_train_choice *c,
                         bool has_context) {
    const rpi_training_layout *l = &c->candidate.layout;
    const rpi_forecast *f = &c->candidate.forecast;
    char hours[RPI_NUMBER_BYTES] = "-", cost[RPI_NUMBER_BYTES] = "-";
    if (c->hours > 0) snprintf(hours, sizeof hours, "%.4g", c->hours);
    if (c->cost >= 0) snprintf(cost, sizeof cost, "%.5g", c->cost);
    printf("  %-16s  %6lld  %4lld", c->offer ? offers[c->offer].name : "(as it is)",
           (long long)c->hosts, (long long)l->tensor);
    if (has_context) printf("  %4lld", (long long)l->context);
    printf("  %4lld  %5lld  %4d  %5lld  %-9s  %10.4g  %6.1f GB  %10s  "
           "%10s\n",
           (long long)l->pipeline, (long long)l->data, l->zero, (long long)l->micro_batch,
           rpi_recompute_names[l->recompute], f->tokens_per_s, f->memory.all * 1e-9, hours,
           cost);
}

void rpi_train_frontier_print(const rpi_train_offer *offers, const rpi_train_frontier *f) {
    printf("\nno other layout is as fast%s with as little memory%s:\n",
           f->has_price ? " and as cheap" : "",
           f->has_price ? ", on as many hosts as there are, or fewer" : "");
    bool has_context = false;
    for (int i = 0; i < f->count; i++)
        has_context |= f->choices[i].candidate.layout.context > 1;
    printf("  %-16s  %6s  %4s%s  %4s  %5s  %4s  %5s  %-9s  %10s  %9s  %10s  %10s\n", "",
           "hosts", "tp", has_context ? "    cp" : "", "pp", "dp", "zero", "micro", "recompute",
           "tokens/s", "memory", "hours", "cost");
    for (int i = 0; i < f->count; i++) print_choice(offers, &f->choices[i], has_context);
}
