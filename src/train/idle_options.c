#include "train/idle_options.h"

#include "base/append.h"
#include "base/status.h"
#include "redpoll/adaptive.h"
#include "redpoll/codec.h"

#include <stdio.h>
#include <string.h>

/* ---- what options need ---- */

typedef enum need_name { LOSSY, HOLDERS, STAGES, TENSOR_RANKS, HOSTS, SUMS, NEEDS } need_name;

static bool is_lossy(const char *text) {
    rp_adaptive_codec codec;
    if (!text || rp_adaptive_codec_parse(text, &codec) != RP_OK) return false;
    return codec.every > 0 || codec.fastest || !rp_codec_is_exact(&codec.codec, RP_F32);
}

static bool sends_lossy(const rpi_train_options *o, const rpi_idle_layout *l) {
    (void)l;
    return is_lossy(o->codec);
}

static bool has_holders(const rpi_train_options *o, const rpi_idle_layout *l) {
    (void)o;
    return l->holders > 1;
}

static bool has_stages(const rpi_train_options *o, const rpi_idle_layout *l) {
    (void)o;
    return l->stages > 1;
}

static bool has_tensor_ranks(const rpi_train_options *o, const rpi_idle_layout *l) {
    (void)o;
    return l->tensor_ranks > 1;
}

static bool has_hosts(const rpi_train_options *o, const rpi_idle_layout *l) {
    (void)o;
    return l->keeps_copies;
}

static bool has_sums(const rpi_train_options *o, const rpi_idle_layout *l) {
    (void)o;
    return l->all_reduces;
}

static void say_two_replicas(const rpi_idle_layout *l, char text[32]) {
    snprintf(text, 32, "-n %d", 2 * l->replica_ranks);
}

/* enough: a value that would satisfy it, or the function that prints one. */
static const struct need_row {
    bool (*is_met)(const rpi_train_options *options, const rpi_idle_layout *layout);
    const char *why, *enough;
    void (*say_enough)(const rpi_idle_layout *layout, char text[32]);
} needs[NEEDS] = {
    [LOSSY] = {sends_lossy, "gradients travel exact", "--codec q4", NULL},
    [HOLDERS] = {has_holders, "no other rank holds the same parameters", NULL,
                 say_two_replicas},
    [STAGES] = {has_stages, "the model is one stage", "--pp 2", NULL},
    [TENSOR_RANKS] = {has_tensor_ranks, "no ranks share a layer", "--tp 2", NULL},
    [HOSTS] = {has_hosts, "it takes several hosts with several ranks of one layout each", NULL,
               NULL},
    [SUMS] = {has_sums, "the strategy makes no all-reduce", "--strategy all-reduce", NULL},
};

/* ---- the options ---- */

enum { VALUE = 80 };

/* Appends " VALUE" to text if the option was given a value other than the default behaviour. */
static bool take(const char *value, char text[VALUE]) {
    if (!value || !*value) return false;
    snprintf(text, VALUE, " %s", value);
    return true;
}

static bool take_number(int64_t value, char text[VALUE]) {
    if (value <= 0) return false;
    snprintf(text, VALUE, " %lld", (long long)value);
    return true;
}

static bool zero(const rpi_train_options *o, char text[VALUE]) {
    return take_number(o->zero, text);
}

static bool host_shards(const rpi_train_options *o, char text[VALUE]) {
    text[0] = '\0';
    return o->host_shards && o->zero >= 3;
}

static bool codec(const rpi_train_options *o, char text[VALUE]) {
    return is_lossy(o->codec) && take(o->codec, text);
}

static bool weights_codec(const rpi_train_options *o, char text[VALUE]) {
    return is_lossy(o->weights_codec) && take(o->weights_codec, text);
}

static bool algorithm(const rpi_train_options *o, char text[VALUE]) {
    return take(o->algorithm, text);
}

static bool warmup_exact(const rpi_train_options *o, char text[VALUE]) {
    return take_number(o->warmup_exact, text);
}

static bool schedule(const rpi_train_options *o, char text[VALUE]) {
    return o->schedule && strcmp(o->schedule, "1f1b") != 0 && take(o->schedule, text);
}

static bool stage_cut(const rpi_train_options *o, char text[VALUE]) {
    return take(o->stage_cut, text);
}

static bool sequence_parallel(const rpi_train_options *o, char text[VALUE]) {
    text[0] = '\0';
    return o->sequence_parallel;
}

/* Adds a row. If several needs are not satisfied, the first is reported. */
static const struct idle_row {
    const char *name;
    bool (*is_said)(const rpi_train_options *options, char text[VALUE]);
    need_name needs[2];
} rows[] = {
    {"zero", zero, {HOLDERS, HOLDERS}},
    {"host-shards", host_shards, {HOLDERS, HOSTS}},
    {"codec", codec, {HOLDERS, HOLDERS}},
    {"weights-codec", weights_codec, {HOLDERS, HOLDERS}},
    {"algorithm", algorithm, {HOLDERS, SUMS}},
    {"warmup-exact", warmup_exact, {HOLDERS, LOSSY}},
    {"schedule", schedule, {STAGES, STAGES}},
    {"stage-cut", stage_cut, {STAGES, STAGES}},
    {"sequence-parallel", sequence_parallel, {TENSOR_RANKS, TENSOR_RANKS}},
};
enum { ROWS = sizeof rows / sizeof rows[0] };

/* ---- the notes ---- */

/* NEEDS: everything that it needs is present, or the option was not given. */
static need_name lacks(const struct idle_row *row, const rpi_train_options *o,
                       const rpi_idle_layout *l, char text[VALUE]) {
    if (!row->is_said(o, text)) return NEEDS;
    for (int i = 0; i < 2; i++)
        if (!needs[row->needs[i]].is_met(o, l)) return row->needs[i];
    return NEEDS;
}

/* "--zero 1, --codec q4 and --algorithm sra"; returns their number. */
static int list(const rpi_train_options *o, const rpi_idle_layout *l, need_name need,
                char *line, size_t bytes) {
    char text[ROWS][VALUE];
    const char *names[ROWS];
    int count = 0;
    for (int i = 0; i < ROWS; i++)
        if (lacks(&rows[i], o, l, text[count]) == need) names[count++] = rows[i].name;
    line[0] = '\0';
    for (int i = 0; i < count; i++)
        rpi_append(line, bytes, "%s--%s%s",
                   !i              ? ""
                   : i + 1 < count ? ", "
                                   : " and ",
                   names[i], text[i]);
    return count;
}

void rpi_idle_options_tell(const rpi_train_options *o, const rpi_idle_layout *l,
                           void (*note)(void *context, const char *line), void *context) {
    for (need_name n = 0; n < NEEDS; n++) {
        char line[1024], enough[32] = "";
        int count = list(o, l, n, line, sizeof line);
        if (!count) continue;
        rpi_append(line, sizeof line, " change%s nothing: %s", count == 1 ? "s" : "",
                   needs[n].why);
        if (needs[n].enough) snprintf(enough, sizeof enough, "%s", needs[n].enough);
        if (needs[n].say_enough) needs[n].say_enough(l, enough);
        if (enough[0]) rpi_append(line, sizeof line, " (%s)", enough);
        note(context, line);
    }
}
