/* What `redpoll plan train` says to people. */
#include "cli/numbers.h"
#include "cli/plan_train.h"

#include <math.h>
#include <stdio.h>

static void print_head(const rpi_train_offer *o) {
    const rpi_planned_training *p = &o->planned;
    const rpi_training_layout *l = &o->found.best[0].layout;
    if (o->name[0]) printf("%s: ", o->name);
    printf("%s, %.4g parameters, on %lld ranks of %s (%lld host%s)", o->said.model,
           rpi_transformer_count(&l->model).all, (long long)p->ranks, p->machine.device.name,
           (long long)o->said.hosts, o->said.hosts == 1 ? "" : "s");
    if (o->said.link) printf(", link %s", o->said.link);
    printf("\na step has %lld samples of %lld tokens; gradients %s, %s",
           (long long)l->global_batch, (long long)l->sequence, o->said.codec,
           l->precision->name);
    if (o->said.activations_codec) printf(", activations %s", o->said.activations_codec);
    printf("\n");
}

/* The column of ranks that share sequences is where there are any. */
static void print_layout(const rpi_candidate *c, bool is_best, bool has_context) {
    const rpi_training_layout *l = &c->layout;
    const rpi_forecast *f = &c->forecast;
    char time[RPI_TIME_BYTES];
    printf("%c %4lld", is_best ? '*' : ' ', (long long)l->tensor);
    if (has_context) printf("  %4lld", (long long)l->context);
    printf("  %4lld  %5lld  %4d  %5lld  %-9s  %10.4g  %10.4g to %-10.4g  %10s  %5.1f %%  "
           "%6.1f GB\n",
           (long long)l->pipeline, (long long)l->data, l->zero, (long long)l->micro_batch,
           rpi_recompute_names[l->recompute], f->tokens_per_s,
           f->tokens_per_s * f->step_s / f->high_s, f->tokens_per_s * f->step_s / f->low_s,
           rpi_time_text(f->step_s, time), 100 * f->mfu, f->memory.all * 1e-9);
}

static void print_layouts(const rpi_train_offer *o) {
    const rpi_found_layouts *found = &o->found;
    printf("%lld of %lld layouts fit; the fastest:\n", (long long)found->fitting,
           (long long)found->tried);
    bool has_context = false;
    for (int i = 0; i < found->count; i++) has_context |= found->best[i].layout.context > 1;
    printf("  %4s%s  %4s  %5s  %4s  %5s  %-9s  %10s  %24s  %10s  %7s  %9s\n", "tp",
           has_context ? "    cp" : "", "pp", "dp", "zero", "micro", "recompute", "tokens/s",
           "9 of 10 times", "step", "MFU", "memory");
    for (int i = 0; i < found->count; i++) print_layout(&found->best[i], i == 0, has_context);
    if (found->best[0].forecast.is_far)
        printf("more ranks, or smaller work, than anything that %s was fitted to: the "
               "interval is wide\n",
               o->planned.machine.device.name);
}

static void print_time(const rpi_forecast *f) {
    char time[RPI_TIME_BYTES];
    printf("\nwhere a step of * goes:\n");
    for (int i = 0; i < RPI_TIME_ITEMS; i++)
        if (f->seconds[i] > 0)
            printf("  %-12s  %10s  %5.1f %%\n", rpi_time_names[i],
                   rpi_time_text(f->seconds[i], time), 100 * f->seconds[i] / f->step_s);
}

static void print_memory(const rpi_train_offer *o) {
    const rpi_rank_memory *m = &o->found.best[0].forecast.memory;
    rpi_memory_item largest = rpi_rank_memory_largest(m);
    printf("\nmemory of a rank of stage %lld, of %.1f GB:\n", (long long)m->stage,
           rpi_plan_device_value(&o->planned.machine.device, RPI_FACT_MEMORY_BYTES) * 1e-9);
    for (int i = 0; i < RPI_MEMORY_ITEMS; i++)
        if (m->bytes[i] > 0)
            printf("  %-12s  %7.2f GB%s%s\n", rpi_memory_names[i], m->bytes[i] * 1e-9,
                   i == (int)largest ? "  less with " : "",
                   i == (int)largest ? rpi_memory_advice[i] : "");
}

static void print_codec(const rpi_train_offer *o) {
    const char *codec = rpi_train_codec_of(o);
    double rate = o->codec_pays_below;
    if (rate < 0) return;
    if (rate == 0)
        printf("\n%s shortens a step at no rate of a host's link\n", codec);
    else if (isinf(rate))
        printf("\n%s shortens a step at every rate of a host's link\n", codec);
    else
        printf("\n%s shortens a step where a host's link has less than %.*f Gbit/s\n", codec,
               rate * 8e-9 < 1000, rate * 8e-9);
}

static void print_bill(const rpi_train_bill *b) {
    char time[RPI_TIME_BYTES];
    if (b->tokens == 0) return;
    printf("\n%.4g tokens: %.4g h (9 of 10 times %.4g to %.4g), %.5g node hours", b->tokens,
           b->hours, b->low_hours, b->high_hours, b->node_hours);
    if (b->cost >= 0) printf(", %.5g at %.4g a node and hour", b->cost, b->price);
    if (b->kwh > 0) printf(", %.4g MWh of devices", b->kwh / 1000);
    putchar('\n');
    if (b->has_spot) rpi_train_spot_print(&b->spot);
    if (!b->has_failures) return;
    printf("it stops every %.4g h: save every %s, goodput %.2f %%, %.4g h for saves and "
           "failures\n",
           b->stop_every_s / 3600, rpi_time_text(b->failures.interval_s, time),
           100 * b->failures.goodput, b->hours - b->failures.work_s / 3600);
}

static void print_comparison(const rpi_train_offer *offers, int count) {
    printf("\n  %-16s  %10s  %8s  %10s  %10s\n", "", "tokens/s", "as fast", "hours", "cost");
    for (int i = 0; i < count; i++) {
        const rpi_train_offer *o = &offers[i];
        char hours[RPI_NUMBER_BYTES] = "-", cost[RPI_NUMBER_BYTES] = "-";
        double rate = o->found.best[0].forecast.tokens_per_s;
        if (o->bill.tokens > 0) snprintf(hours, sizeof hours, "%.4g", o->bill.hours);
        if (o->bill.tokens > 0 && o->bill.cost >= 0)
            snprintf(cost, sizeof cost, "%.5g", o->bill.cost);
        printf("  %-16s  %10.4g  %6.2f x  %10s  %10s\n", i ? o->name : "(as it is)", rate,
               rate / offers[0].found.best[0].forecast.tokens_per_s, hours, cost);
    }
}

void rpi_train_offers_print(const rpi_train_offer *offers, int count, bool explain) {
    for (int i = 0; i < count; i++) {
        const rpi_train_offer *o = &offers[i];
        if (i) putchar('\n');
        print_head(o);
        print_layouts(o);
        if (i && o->bill.has_spot) rpi_train_spot_print(&o->bill.spot);
        if (i) continue;
        print_time(&o->found.best[0].forecast);
        print_memory(o);
        print_codec(o);
        print_bill(&o->bill);
        if (explain) rpi_train_explain(o);
    }
    if (count > 1) print_comparison(offers, count);
}
