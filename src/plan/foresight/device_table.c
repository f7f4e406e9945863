#include "plan/foresight/device_table.h"

#include "base/append.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/suggest.h"
#include "base/units.h"
#include "plan/foresight/device_lines.h"

#include <string.h>

enum { MOST_TEXTS = 16 };

/* clang-format off */
static const rpi_fact_info facts[RPI_FACTS] = {
    {"memory_bytes", "of the device", 1, 1e15, true, false},
    {"memory_bytes_s", "at which it reads its memory", 1, 1e18, true, false},
    {"bf16_flops", "matrix products in bf16, at best; 0: none", 0, 1e20, false, false},
    {"fp16_flops", "matrix products in fp16, at best; 0: none", 0, 1e20, false, false},
    {"fp32_flops", "matrix products in fp32, at best; 0: none", 0, 1e20, false, false},
    {"watts", "under load", 0, 1e6, false, false},
    {"local_bytes_s", "each way to the others of a host, where --local does not say it", 1, 1e15,
     true, false},
    {"local_latency_s", "of a hop to them", 0, 10, true, false},
    {"local_start_s", "that a sum among the ranks of a host takes to begin", 0, 10, true, false},
    {"gemm_share", "of the best rate, in large matrix products", .001, 1, true, true},
    {"gemm_half_side", "smallest side of a product at which half of that is reached", 0, 1e5, true,
     true},
    {"gemm_power", "how steeply products slow down below: 1 / (1 + (half_side / side)^power)", .05,
     8, true, true},
    {"tile_rows", "of the part of a product's result that a processor of the device makes at a time", 0, 1e6,
     false, false},
    {"tile_columns", "of the same", 0, 1e6, false, false},
    {"tiles_at_once", "that the device makes; 0: products are not made by tiles", 0, 1e6, false, false},
    {"tile_half_share", "of the rate, by tiles half as large; 0: there are none", 0, 1, false, false},
    {"attention_share", "of the best rate, in fused attention", .001, 1, true, true},
    {"memory_share", "of the memory's rate, in what is no matrix product", .001, 1, true, true},
    {"memory_backward", "what that takes backward, of what it takes forward", .1, 10, true, false},
    {"layer_host_s", "that the host takes to start a pass over a layer", 0, 10, true, true},
    {"sum_host_s", "and to start a sum over tensor-parallel ranks", 0, 10, true, true},
    {"softmax_host_s", "and to start a softmax of scores whose kernel does not take so many matrices", 0,
     10, false, true},
    {"softmax_multiple", "of matrices that the kernel takes, one a head and sample; 0: any", 0, 1e6,
     false, false},
    {"sum_hidden", "share of a backward pass's sums over tensor-parallel ranks that products hide", 0, 1, true, true},
    {"step_host_s", "beside that, a step", 0, 1000, true, true},
    {"shard_host_s", "and where ranks have shards of gradients or parameters, ZeRO 2 and 3", 0, 1000, false, true},
    {"link_share", "of the rate of a host's link, in sums over hosts", .001, 1, true, true},
    {"overlap", "share of the backward pass that hides sums of gradients", 0, 1, true, true},
    {"bucket_bytes", "of gradients that one sum takes, the last of which nothing hides; 0: as "
                     "hidden as overlap says", 0, 1e12, false, false},
    {"hop_blocks", "share of what a stage of a pipeline sends for which it does nothing else", 0,
     1, false, false},
    {"context_bytes", "that the device takes for itself", 0, 1e12, true, false},
    {"fragment_share", "of memory that is lost between pieces", 0, 1, true, false},
    {"residual", "that 9 of 10 trainings it was fitted to stay within: a factor, as 1.1", 1, 100,
     true, false},
    {"residual_far", "the same, of trainings that are like none of those", 1, 100, true, false},
    {"fitted_ranks", "most ranks of a training it was fitted to", 1, 1e7, true, false},
    {"fitted_pass_flops", "least operations of a rank's pass over a layer in one it was fitted to", 0,
     1e20, true, false},
};
/* clang-format on */

const rpi_fact_info *rpi_fact_at(int index) {
    return index >= 0 && index < RPI_FACTS ? &facts[index] : NULL;
}

const char *const rpi_fact_kinds[RPI_KNOWN_KINDS] = {"published", "measured", "fitted",
                                                     "assumed", "given"};

struct rpi_plan_device_table {
    rpi_plan_device *devices;
    int count;
    char *texts[MOST_TEXTS]; /* the texts of the sources */
    int text_count;
};

/* ---- names ---- */

static const char *fact_at(const void *context, int index) {
    (void)context;
    return index < RPI_FACTS ? facts[index].name : NULL;
}

static const char *kind_at(const void *context, int index) {
    (void)context;
    return index < RPI_KNOWN_GIVEN ? rpi_fact_kinds[index] : NULL;
}

static const char *device_at(const void *context, int index) {
    const rpi_plan_device_table *table = context;
    return index < table->count ? table->devices[index].name : NULL;
}

const rpi_plan_device *rpi_plan_device_at(const rpi_plan_device_table *t, int index) {
    return index >= 0 && index < t->count ? &t->devices[index] : NULL;
}

static rpi_plan_device *find(const rpi_plan_device_table *t, const char *name) {
    for (int i = 0; i < t->count; i++)
        if (strcmp(t->devices[i].name, name) == 0) return &t->devices[i];
    return NULL;
}

/* ---- a line ---- */

typedef struct line {
    char *device, *fact, *value, *kind, *source;
} line;

/* Takes the word that begins at *at, and ends it with a NUL; NULL: there is none. */
static char *take_word(char **at) {
    char *begin = *at + strspn(*at, " \t\r");
    size_t length = strcspn(begin, " \t\r");
    if (!length) return NULL;
    *at = begin + length;
    if (**at) *(*at)++ = '\0';
    return begin;
}

/* false: the line is empty, or a comment. */
static bool split(char *text, line *out) {
    char *at = text;
    *out = (line){.device = take_word(&at)};
    if (!out->device || out->device[0] == '#') return false;
    out->fact = take_word(&at);
    out->value = take_word(&at);
    out->kind = take_word(&at);
    out->source = at + strspn(at, " \t\r");
    for (size_t n = strlen(out->source); n && strchr(" \t\r", out->source[n - 1]);)
        out->source[--n] = '\0';
    return true;
}

static rp_status add_device(rpi_plan_device_table *t, const char *name, rpi_plan_device **out) {
    if (strlen(name) >= RPI_DEVICE_NAME)
        return RP_FAIL(INVALID, "the name '%.60s' is longer than %d letters", name,
                       RPI_DEVICE_NAME - 1);
    if (!find(t, name)) {
        size_t count = (size_t)t->count;
        RP_TRY(rpi_grow_array(count, count + 1, sizeof *t->devices, "devices", &t->devices));
        memcpy(t->devices[t->count++].name, name, strlen(name) + 1);
    }
    *out = find(t, name);
    return RP_OK;
}

static rp_status take_like(rpi_plan_device_table *t, const line *l, rpi_plan_device *device) {
    char hint[96];
    const rpi_plan_device *other = find(t, l->value);
    if (!other || other == device)
        return RP_FAIL(INVALID, "'%s' is like an unknown device '%s'%s", l->device, l->value,
                       rpi_suggest_text(l->value, device_at, t, hint, sizeof hint));
    memcpy(device->facts, other->facts, sizeof device->facts);
    return RP_OK;
}

static rp_status take_fact(const line *l, rpi_plan_device *device) {
    int fact = 0, kind = 0;
    double value;
    RP_TRY(rpi_name_find("fact", l->fact, fact_at, NULL, &fact));
    RP_TRY(rpi_name_find("kind of a fact", l->kind, kind_at, NULL, &kind));
    rp_status status = rpi_parse_real(l->value, &value);
    if (status != RP_OK) return rpi_fail_context(status, "%s: ", l->fact);
    if (!(value >= facts[fact].least && value <= facts[fact].most))
        return RP_FAIL(INVALID, "%s: '%s' is out of range, %g to %g", l->fact, l->value,
                       facts[fact].least, facts[fact].most);
    device->facts[fact] = (rpi_plan_device_fact){value, (rpi_fact_kind)kind, l->source};
    return RP_OK;
}

static rp_status take_line(rpi_plan_device_table *t, char *text) {
    line l;
    rpi_plan_device *device;
    if (!split(text, &l)) return RP_OK;
    if (!l.kind)
        return RP_FAIL(INVALID, "a line is DEVICE FACT VALUE KIND SOURCE, as in 'a100-80g "
                                "memory_bytes 80e9 published datasheet'");
    if (!l.source[0])
        return RP_FAIL(INVALID, "%s of %s has no source: who says so?", l.fact, l.device);
    RP_TRY(add_device(t, l.device, &device));
    return strcmp(l.fact, "like") == 0 ? take_like(t, &l, device) : take_fact(&l, device);
}

/* ---- the table ---- */

rp_status rpi_plan_device_table_add(rpi_plan_device_table *t, const char *text,
                                    const char *name) {
    if (t->text_count == MOST_TEXTS)
        return RP_FAIL(INVALID, "%d files of devices are the most", MOST_TEXTS - 1);
    char *at = NULL;
    RP_TRY(rpi_strdup(text, &at));
    t->texts[t->text_count++] = at;
    for (int number = 1; *at; number++) {
        size_t length = strcspn(at, "\n");
        char *next = at + length + (at[length] == '\n');
        at[length] = '\0';
        rp_status status = take_line(t, at);
        if (status != RP_OK) return rpi_fail_context(status, "%s, line %d: ", name, number);
        at = next;
    }
    return RP_OK;
}

static rp_status add_known(rpi_plan_device_table *t) {
    size_t bytes = 1;
    char *text = NULL;
    for (int i = 0; rpi_plan_device_lines[i]; i++)
        bytes += strlen(rpi_plan_device_lines[i]) + 1;
    RP_TRY(rpi_alloc(bytes, "the table of devices", &text));
    char *at = text;
    for (int i = 0; rpi_plan_device_lines[i]; i++) {
        size_t length = strlen(rpi_plan_device_lines[i]);
        memcpy(at, rpi_plan_device_lines[i], length);
        at[length] = '\n';
        at += length + 1;
    }
    rp_status status = rpi_plan_device_table_add(t, text, "devices.txt");
    rpi_free(text);
    return status;
}

rp_status rpi_plan_device_table_make(rpi_plan_device_table **out_table) {
    rpi_plan_device_table *t = NULL;
    RP_TRY(rpi_alloc(sizeof *t, "the table of devices", &t));
    rp_status status = add_known(t);
    if (status == RP_OK)
        *out_table = t;
    else
        rpi_plan_device_table_destroy(t);
    return status;
}

void rpi_plan_device_table_destroy(rpi_plan_device_table *t) {
    if (!t) return;
    for (int i = 0; i < t->text_count; i++) rpi_free(t->texts[i]);
    rpi_free(t->devices);
    rpi_free(t);
}

/* ---- a device ---- */

rp_status rpi_plan_device_find(const rpi_plan_device_table *t, const char *name,
                               rpi_plan_device *out) {
    int index = 0;
    RP_TRY(rpi_name_find("device", name, device_at, t, &index));
    const rpi_plan_device *device = &t->devices[index];
    for (int i = 0; i < RPI_FACTS; i++)
        if (facts[i].needed && !device->facts[i].source)
            return RP_FAIL(
                INVALID,
                "device %s lacks %s, %s; a line '%s like a100-80g assumed WHY' takes "
                "what it lacks from another",
                name, facts[i].name, facts[i].help, name);
    *out = *device;
    return RP_OK;
}

/* The rate in each dtype, and the dtype's name in --precision. */
static const struct {
    const char *dtype, *precision;
    rpi_fact fact;
} rates[] = {{"bf16", "bf16", RPI_FACT_BF16},
             {"fp16", "fp16", RPI_FACT_FP16},
             {"fp32", "fp32", RPI_FACT_FP32}};
enum { RATES = sizeof rates / sizeof rates[0] };

static bool multiplies(const rpi_plan_device *device, rpi_fact fact) {
    return device->facts[fact].source && device->facts[fact].value > 0;
}

rp_status rpi_plan_device_peak(const rpi_plan_device *device, const char *dtype,
                               rpi_fact *out_fact) {
    rpi_fact fact = RPI_FACT_FP32;
    char others[64] = "";
    for (int i = 0; i < RATES; i++) {
        if (strcmp(rates[i].dtype, dtype) == 0) fact = rates[i].fact;
        if (multiplies(device, rates[i].fact))
            rpi_append(others, sizeof others, "%s%s", others[0] ? " or " : "; --precision ",
                       rates[i].precision);
    }
    if (!multiplies(device, fact))
        return RP_FAIL(INVALID, "device %s has no %s: it does not multiply in %s%s",
                       device->name, facts[fact].name, dtype, others);
    *out_fact = fact;
    return RP_OK;
}

void rpi_plan_device_print(const rpi_plan_device *device, const char *source, char *text,
                           size_t bytes) {
    text[0] = '\0';
    for (int i = 0; i < RPI_FACTS; i++)
        if (facts[i].fitted || i == RPI_FACT_RESIDUAL || i >= RPI_FACT_FITTED_RANKS)
            rpi_append(text, bytes, "%-16s %-16s %-12.6g fitted  %s\n", device->name,
                       facts[i].name, device->facts[i].value, source);
}
