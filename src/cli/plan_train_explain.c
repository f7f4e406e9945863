/* Every term of a forecast, with its formula and where its numbers come from. */
#include "cli/numbers.h"
#include "cli/plan_train.h"

#include <stdio.h>

static void term(const char *name, double seconds, const char *formula) {
    char time[RPI_TIME_BYTES];
    printf("  %-10s  %10s  %s\n", name, rpi_time_text(seconds, time), formula);
}

static const char *attention_formula(const rpi_training_layout *l, bool measured) {
    if (!l->fused_attention)
        return "products, and scores written and read at the memory's rate";
    return measured ? "4 b s^2 (a d / t) over the rate measured at s, d and b a / t"
                    : "4 b s^2 (a d / t) / (peak attention_share)";
}

static void explain_layer(const rpi_step_terms *x, const rpi_training_layout *l,
                          bool measured) {
    if (l->context > 1)
        printf("\na layer, of a micro-batch of b s tokens, of which each of c = %lld ranks has "
               "b s / c, and sees all keys:\n",
               (long long)l->context);
    else
        printf("\na layer, of a micro-batch of b s tokens:\n");
    term("products", x->products_s,
         measured
             ? "sum of 2 m n k over the rate measured at m, n and k, interpolated"
             : "sum of 2 m n k (1 + (gemm_half_side / side)^gemm_power) / (peak gemm_share)");
    term("attention", x->attention_s, attention_formula(l, measured));
    term(
        "rest", x->memory_s,
        measured
            ? "norms, sums, activation: bytes over the rate measured at as many"
            : "norms, sums, activation, unfused scores: bytes / (memory_bytes_s memory_share)");
    term("sums", x->sums_s, "of tensor-parallel ranks: 2 all-reduces of b s h");
    if (l->context > 1)
        term("keys", x->keys_s,
             measured
                 ? "gathered once: (c - 1) / c 2 b s k / t in 4 bytes, and c - 1 latencies; "
                   "once forward, twice backward"
                 : "gathered once: (c - 1) / c 2 b s k / t, and c - 1 latencies; once "
                   "forward, twice backward");
    term("start", x->start_s,
         "layer_host_s, sum_host_s for each sum and gather, softmax_host_s where softmax is "
         "not fused");
    term("forward", x->forward_s,
         l->context > 1 ? "the longer of products + attention + rest + sums + keys, and start"
                        : "the longer of products + attention + rest + sums, and start");
    term("backward", x->backward_s,
         "the same, of 2 products, 2 attention (2.5 fused), memory_backward rest");
    term("again", x->again_s, "what --recompute makes again");
}

static void explain_step(const rpi_step_terms *x, const rpi_forecast *f, bool measured) {
    printf("\na step of %lld micro-batches, the slowest stage with %lld layers:\n",
           (long long)x->micro_batches, (long long)x->layers);
    term("head", x->head_s,
         measured ? "6 b s h V / t over the rates measured of logits and their loss"
                  : "3 products of b s h V / t, and logits read six times");
    term("micro", x->slot_s,
         measured ? "layers (forward + backward + again) + head"
                  : "layers (forward + backward + again) + head + gradients that are added");
    term("bubble", f->seconds[RPI_TIME_BUBBLE],
         "of the schedule, by events, where links cost nothing");
    term("hop", x->hop_s,
         "latency + b s h / t / rate; what they add to the schedule is known by events");
    term("data", x->data_s,
         measured ? "between: as of other devices; and cores, S over the rate of sums as long "
                    "as a bucket, which nothing hides"
                  : "inside: (n - 1) / n S / local, between: (H - 1) / H S groups / "
                    "(link link_share); twice");
    term("codec", x->codec_s,
         measured ? "of that: as measured"
                  : "of that: reading and writing at the memory's rate");
    term("hidden", x->hidden_s,
         "that a backward pass may hide: overlap of it, from the first full bucket on");
    term(
        "optimizer", f->seconds[RPI_TIME_OPTIMIZER],
        measured
            ? "bytes of a parameter over the rate measured of AdamW"
            : "bytes of a parameter, read and written, and 4 passes over gradients to clip and "
              "clear them, at the memory's rate");
    term("host", f->seconds[RPI_TIME_HOST],
         measured ? "step_host_s, and gradients over the rate at which each is looked at"
                  : "step_host_s, and shard_host_s with ZeRO 2 and 3");
    printf("  S is %.4g bytes, on %lld host%s; the peak %.4g a second\n", x->data_bytes,
           (long long)x->data_hosts, x->data_hosts == 1 ? "" : "s", f->peak_flops);
}

static void explain_facts(const rpi_train_offer *o) {
    const rpi_plan_device *d = &o->planned.machine.device;
    printf("\nfacts of %s:\n", d->name);
    for (int i = 0; i < RPI_FACTS; i++) {
        bool is_local = i == RPI_FACT_LOCAL_RATE || i == RPI_FACT_LOCAL_LATENCY;
        if (!d->facts[i].source || (is_local && o->planned.local_given)) continue;
        printf("  %-16s  %-10.6g  %-9s  %s\n", rpi_fact_at(i)->name, d->facts[i].value,
               rpi_fact_kinds[d->facts[i].kind], d->facts[i].source);
    }
    if (o->said.link) printf("  %-16s  %-10s  given\n", "link", o->said.link);
    if (o->said.local) printf("  %-16s  %-10s  given\n", "local", o->said.local);
}

void rpi_train_explain(const rpi_train_offer *o) {
    const rpi_candidate *c = &o->found.best[0];
    bool measured = o->planned.rates != NULL;
    explain_layer(&c->forecast.terms, &c->layout, measured);
    explain_step(&c->forecast.terms, &c->forecast, measured);
    explain_facts(o);
}
