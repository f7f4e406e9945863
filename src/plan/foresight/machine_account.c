#include "plan/foresight/machine_account.h"

#include "base/status.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
static const rpi_machine_work_info works[RPI_WORKS] = {
    {"product", "of matrices, m x k by k x n", "flop/s", {"m", "n", "k"}, {0}, true},
    {"attention", "fused", "flop/s", {"sequence", "head", "heads"}, {"forward", "backward"}, false},
    {"rest", "of a layer: norms, sums, what no product hides", "bytes/s", {"bytes"},
     {"forward", "backward"}, false},
    {"head", "logits and their loss, and tables of tokens", "flop/s", {"m", "n", "k"},
     {"forward", "backward"}, false},
    {"layer", "with next to nothing in it", "s", {0}, {"forward", "backward"}, false},
    {"step", "beside passes and the optimizer", "s", {0}, {0}, false},
    {"gradients", "looked at: is each a number", "bytes/s", {"bytes"}, {0}, false},
    {"optimizer", "AdamW", "bytes/s", {"bytes"}, {0}, false},
    {"copy", "of memory, read and written", "bytes/s", {"bytes"}, {0}, false},
    {"sum", "an all-reduce of the ranks of this host", "bytes/s", {"bytes"}, {0}, false},
    {"layer-sum", "an all-reduce of the ranks of this host, between products", "bytes/s", {"bytes"}, {0}, false},
    {"codec", "of elements in fp32", "bytes/s", {0}, {"encode", "decode-add"}, true},
    {"disk", "a file, safe on it", "bytes/s", {0}, {"write", "read"}, false},
    {"program", "of a rank, in memory with next to nothing to train", "bytes", {0}, {0}, false},
};
/* clang-format on */

const rpi_machine_work_info *rpi_machine_work_at(int index) {
    return index >= 0 && index < RPI_WORKS ? &works[index] : NULL;
}

rp_status rpi_machine_account_add(rpi_machine_account *a, const rpi_machine_item *item) {
    const rpi_machine_work_info *info = &works[item->work];
    if (a->count == RPI_MACHINE_ITEMS)
        return RP_FAIL(INVALID, "%d items of a machine are the most", RPI_MACHINE_ITEMS);
    if (!(item->value > 0) || !(item->low > 0) || !(item->high >= item->low) ||
        !isfinite(item->value) || !isfinite(item->high))
        return RP_FAIL(INVALID, "%s: %g, from %g to %g, is no measurement", info->name,
                       item->value, item->low, item->high);
    for (int i = 0; i < RPI_RATE_SIDES && info->sides[i]; i++)
        if (!(item->at[i] > 0) || !isfinite(item->at[i]))
            return RP_FAIL(INVALID, "%s: %s of %g is no size", info->name, info->sides[i],
                           item->at[i]);
    a->items[a->count++] = *item;
    return RP_OK;
}

const rpi_machine_item *rpi_machine_account_find(const rpi_machine_account *a,
                                                 rpi_machine_work work, int pass,
                                                 const char *name) {
    for (int i = 0; i < a->count; i++) {
        const rpi_machine_item *item = &a->items[i];
        if (item->work == work && item->pass == pass &&
            (!name[0] || strcmp(item->name, name) == 0))
            return item;
    }
    return NULL;
}

/* ---- rates by size ---- */

static rpi_rate_table *products_of(rpi_measured_rates *r, const char *dtype) {
    for (int i = 0; i < RPI_RATE_DTYPES; i++) {
        if (r->dtypes[i][0] && strcmp(r->dtypes[i], dtype) != 0) continue;
        snprintf(r->dtypes[i], sizeof r->dtypes[i], "%s", dtype);
        return &r->products[i];
    }
    return NULL;
}

const rpi_rate_table *rpi_measured_products(const rpi_measured_rates *r, const char *dtype) {
    for (int i = 0; r && i < RPI_RATE_DTYPES; i++)
        if (strcmp(r->dtypes[i], dtype) == 0 && r->products[i].count) return &r->products[i];
    return NULL;
}

static rpi_rate_table *table_of(rpi_measured_rates *r, const rpi_machine_item *item) {
    switch (item->work) {
    case RPI_WORK_PRODUCT: return products_of(r, item->name);
    case RPI_WORK_ATTENTION: return &r->attention[item->pass];
    case RPI_WORK_REST: return &r->rest[item->pass];
    case RPI_WORK_HEAD: return &r->head[item->pass];
    case RPI_WORK_GRADIENTS: return &r->gradients;
    case RPI_WORK_OPTIMIZER: return &r->optimizer;
    case RPI_WORK_SUM: return &r->sums;
    case RPI_WORK_LAYER_SUM: return &r->layer_sums;
    default: return NULL;
    }
}

static void make_rates(const rpi_machine_account *a, rpi_measured_rates *r) {
    *r = (rpi_measured_rates){0};
    for (int i = 0; i < a->count; i++) {
        const rpi_machine_item *item = &a->items[i];
        rpi_rate_table *t = table_of(r, item);
        if (!t) continue;
        t->sides = 0;
        while (t->sides < RPI_RATE_SIDES && works[item->work].sides[t->sides]) t->sides++;
        (void)rpi_rate_table_add(t, item->at, item->value);
    }
    for (int i = 0; i < RPI_RATE_DTYPES; i++) rpi_rate_table_fit(&r->products[i]);
    for (int i = 0; i < RPI_RATE_PASSES; i++) {
        rpi_rate_table_fit(&r->attention[i]);
        rpi_rate_table_fit(&r->rest[i]);
        rpi_rate_table_fit(&r->head[i]);
    }
}

/* ---- facts ---- */

static void know(rpi_plan_device *d, rpi_fact fact, double value, rpi_fact_kind kind,
                 const char *source) {
    const rpi_fact_info *info = rpi_fact_at(fact);
    d->facts[fact].value = fmin(fmax(value, info->least), info->most);
    d->facts[fact].kind = kind;
    d->facts[fact].source = source;
}

static double fastest(const rpi_rate_table *t) {
    double most = 0;
    for (int i = 0; i < t->count; i++) most = fmax(most, t->points[i].rate);
    return most;
}

/* The peak is that of the fastest measured product; the formula takes a share of it. */
static void know_products(const rpi_measured_rates *r, const char *source, rpi_plan_device *d) {
    static const struct {
        const char *dtype;
        rpi_fact fact;
    } peaks[] = {{"fp32", RPI_FACT_FP32}, {"bf16", RPI_FACT_BF16}, {"fp16", RPI_FACT_FP16}};
    for (int i = 0; i < (int)(sizeof peaks / sizeof peaks[0]); i++) {
        const rpi_rate_table *t = rpi_measured_products(r, peaks[i].dtype);
        know(d, peaks[i].fact, t ? fastest(t) : 0, RPI_KNOWN_MEASURED,
             t ? source : "no products in it were measured here");
    }
    const rpi_rate_table *t = &r->products[0];
    know(d, RPI_FACT_GEMM_SHARE, t->best / fastest(t), RPI_KNOWN_MEASURED, source);
    know(d, RPI_FACT_GEMM_HALF_SIDE, t->half_side, RPI_KNOWN_MEASURED, source);
    know(d, RPI_FACT_GEMM_POWER, t->power, RPI_KNOWN_MEASURED, source);
}

static void know_memory(const rpi_machine_account *a, const rpi_measured_rates *r,
                        const char *source, rpi_plan_device *d) {
    double rate = 0, largest = 0;
    for (int i = 0; i < a->count; i++) {
        if (a->items[i].work != RPI_WORK_COPY || a->items[i].at[0] < largest) continue;
        largest = a->items[i].at[0];
        rate = a->items[i].value;
    }
    know(d, RPI_FACT_MEMORY_BYTES, a->memory_bytes, RPI_KNOWN_MEASURED, source);
    know(d, RPI_FACT_MEMORY_RATE, rate, RPI_KNOWN_MEASURED, source);
    double at[] = {1e18};
    double forward = rpi_rate_at(&r->rest[0], at), backward = rpi_rate_at(&r->rest[1], at);
    bool has_rest = forward > 0 && backward > 0;
    know(d, RPI_FACT_MEMORY_SHARE, has_rest ? forward / rate : .7,
         has_rest ? RPI_KNOWN_MEASURED : RPI_KNOWN_ASSUMED,
         has_rest ? source : "no layer was measured");
    know(d, RPI_FACT_MEMORY_BACKWARD, has_rest ? forward / backward : 1,
         has_rest ? RPI_KNOWN_MEASURED : RPI_KNOWN_ASSUMED,
         has_rest ? source : "no layer was measured");
    double attention = fastest(&r->attention[0]), peak = fastest(&r->products[0]);
    know(d, RPI_FACT_ATTENTION_SHARE, attention > 0 ? attention / peak : .3,
         attention > 0 ? RPI_KNOWN_MEASURED : RPI_KNOWN_ASSUMED,
         attention > 0 ? source : "no attention was measured");
}

static void know_starts(const rpi_machine_account *a, const char *source, rpi_plan_device *d) {
    static const char not_measured[] = "it was not measured";
    const rpi_machine_item *layer = rpi_machine_account_find(a, RPI_WORK_LAYER, 0, "");
    const rpi_machine_item *step = rpi_machine_account_find(a, RPI_WORK_STEP, 0, "");
    know(d, RPI_FACT_LAYER_HOST, layer ? layer->value : 0,
         layer ? RPI_KNOWN_MEASURED : RPI_KNOWN_ASSUMED, layer ? source : not_measured);
    know(d, RPI_FACT_STEP_HOST, step ? step->value : 0,
         step ? RPI_KNOWN_MEASURED : RPI_KNOWN_ASSUMED, step ? source : not_measured);
    know(d, RPI_FACT_SUM_HOST, 0, RPI_KNOWN_ASSUMED, "a sum's own time has it");
}

/* Two sizes give a line with start and rate: the longest sum, and the shortest. */
static void know_local(const rpi_machine_account *a, const rpi_measured_rates *r,
                       const char *source, rpi_plan_device *d) {
    const rpi_rate_table *t = &r->sums;
    const rpi_rate_point *first = NULL, *last = NULL;
    double n = a->ranks, share = n > 1 ? 2 * (n - 1) / n : 1;
    for (int i = 0; i < t->count; i++) {
        if (!first || t->points[i].at[0] < first->at[0]) first = &t->points[i];
        if (!last || t->points[i].at[0] > last->at[0]) last = &t->points[i];
    }
    know(d, RPI_FACT_LOCAL_LATENCY, 0, RPI_KNOWN_ASSUMED, "a sum's start has it");
    if (!first || first == last) {
        know(d, RPI_FACT_LOCAL_RATE, rpi_plan_device_value(d, RPI_FACT_MEMORY_RATE) / 4,
             RPI_KNOWN_ASSUMED, "one rank was measured: a quarter of its memory's rate");
        know(d, RPI_FACT_LOCAL_START, 20e-6, RPI_KNOWN_ASSUMED, "one rank was measured");
        return;
    }
    double first_s = first->at[0] / first->rate, last_s = last->at[0] / last->rate;
    double more_s = fmax(last_s - first_s, 1e-9);
    know(d, RPI_FACT_LOCAL_RATE, share * (last->at[0] - first->at[0]) / more_s,
         RPI_KNOWN_MEASURED, source);
    know(d, RPI_FACT_LOCAL_START, first_s, RPI_KNOWN_MEASURED, source);
}

/* The mean spread of the repeats of all items, and facts that were not measured. */
static void know_the_rest(const rpi_machine_account *a, rpi_plan_device *d) {
    double spread = 0, timed = 0;
    for (int i = 0; i < a->count; i++) {
        if (a->items[i].work == RPI_WORK_PROGRAM) continue;
        spread += log(a->items[i].high / a->items[i].low) / 2;
        timed++;
    }
    spread /= fmax(timed, 1);
    know(d, RPI_FACT_RESIDUAL, RPI_MACHINE_FORM * exp(spread), RPI_KNOWN_MEASURED,
         "what repeats were between, times 1.1 for what no item has");
    know(d, RPI_FACT_RESIDUAL_FAR, pow(RPI_MACHINE_FORM * exp(spread), 2), RPI_KNOWN_ASSUMED,
         "twice as far");
    know(d, RPI_FACT_FITTED_RANKS, 1e7, RPI_KNOWN_ASSUMED, "it was fitted to none");
    know(d, RPI_FACT_FITTED_PASS, 0, RPI_KNOWN_ASSUMED, "it was fitted to none");
    know(d, RPI_FACT_SUM_HIDDEN, 0, RPI_KNOWN_ASSUMED, "products and sums share cores");
    know(d, RPI_FACT_LINK_SHARE, RPI_MACHINE_LINK_SHARE, RPI_KNOWN_ASSUMED,
         "headers, and pieces that wait for each other");
    know(d, RPI_FACT_OVERLAP, 1, RPI_KNOWN_ASSUMED, "a link that sends costs no core");
    know(d, RPI_FACT_BUCKET, RPI_MACHINE_BUCKET, RPI_KNOWN_ASSUMED,
         "--bucket-mb of redpoll train where it is not said");
    know(d, RPI_FACT_HOP_BLOCKS, 0, RPI_KNOWN_ASSUMED, "sends of pipelines go beside passes");
    know(d, RPI_FACT_FRAGMENT_SHARE, .02, RPI_KNOWN_ASSUMED,
         "of memory that the C library has");
}

/* The memory of a rank before anything is trained. */
static void know_program(const rpi_machine_account *a, const char *source, rpi_plan_device *d) {
    const rpi_machine_item *item = rpi_machine_account_find(a, RPI_WORK_PROGRAM, 0, "");
    know(d, RPI_FACT_CONTEXT_BYTES, item ? item->value : RPI_MACHINE_PROGRAM,
         item ? RPI_KNOWN_MEASURED : RPI_KNOWN_ASSUMED,
         item ? source : "the program itself, 23 to 25 MB with a layer of 8 on x86-64 Linux");
}

rp_status rpi_machine_account_device(const rpi_machine_account *a, const char *source,
                                     rpi_plan_device *d, rpi_measured_rates *rates) {
    make_rates(a, rates);
    *d = (rpi_plan_device){.name = "here"};
    if (!rates->products[0].count)
        return RP_FAIL(INVALID, "it has no product: measure again by redpoll bench machine -o");
    if (!rpi_machine_account_find(a, RPI_WORK_COPY, 0, ""))
        return RP_FAIL(INVALID, "it has no copy: measure again by redpoll bench machine -o");
    know_products(rates, source, d);
    know_memory(a, rates, source, d);
    know_starts(a, source, d);
    know_local(a, rates, source, d);
    know_program(a, source, d);
    know_the_rest(a, d);
    return RP_OK;
}

double rpi_machine_account_save_s(const rpi_machine_account *a, double bytes) {
    const rpi_machine_item *disk = rpi_machine_account_find(a, RPI_WORK_DISK, 0, "");
    return disk ? bytes / disk->value : -1;
}

double rpi_machine_account_codec_s(const rpi_machine_account *a, const char *codec) {
    const rpi_machine_item *encode = rpi_machine_account_find(a, RPI_WORK_CODEC, 0, codec);
    const rpi_machine_item *decode = rpi_machine_account_find(a, RPI_WORK_CODEC, 1, codec);
    return encode && decode ? 4 / encode->value + 4 / decode->value : -1;
}
