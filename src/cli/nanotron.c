#include "cli/nanotron.h"

#include "base/append.h"
#include "base/status.h"
#include "base/units.h"
#include "cli/nanotron_nodes.h"
#include "cli/nanotron_stages.h"
#include "cli/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MODEL   "model.model_config"
#define FACTORY "optimizer.optimizer_factory."
#define RATE    "optimizer.learning_rate_scheduler."

enum { LONGEST_NUMBER = 32 };

static int find(const rpi_nanotron *t, const char *path) {
    return rpi_nanotron_find(t, t->root, path);
}

static int take(const rpi_nanotron *t, const char *path) {
    return rpi_nanotron_take(t, t->root, path);
}

static const char *text_at(const rpi_nanotron *t, const char *path) {
    return rpi_nanotron_text(t, find(t, path));
}

static size_t line_of(const rpi_nanotron *t, int id) {
    return (id ? rpi_nanotron_node(t, id)->start_mark.line : t->line) + 1;
}

/* ---- is it one? ---- */

/* false: it is none. */
static bool begin(const char *file, yaml_document_t *document, rpi_nanotron *out) {
    rpi_nanotron t = {.file = file, .document = document};
    yaml_node_t *root = yaml_document_get_root_node(document);
    if (!root || root->type != YAML_MAPPING_NODE) return false;
    t.root = (int)(root - document->nodes.start) + 1;
    int config = find(&t, MODEL);
    if (!rpi_nanotron_is_mapping(&t, config)) return false;
    t.line = rpi_nanotron_node(&t, config)->start_mark.line;
    *out = t;
    return true;
}

bool rpi_nanotron_is(yaml_document_t *document) {
    rpi_nanotron t;
    return begin("", document, &t);
}

/* ---- families ---- */

/* "is_qwen2_config" marks a family, if it is true. */
static bool is_marker(const char *key) {
    size_t length = strlen(key);
    return strncmp(key, "is_", 3) == 0 && length > 10 &&
           strcmp(key + length - 7, "_config") == 0 && strcmp(key, "is_llama_config") != 0;
}

static bool is_said(const rpi_nanotron *t, int value) {
    return !rpi_nanotron_is_among(t, value, "false|null");
}

static rp_status refuse_family(const rpi_nanotron *t, const yaml_node_pair_t *pair,
                               const char *family) {
    return RP_FAIL(INVALID,
                   "%s:%zu: " MODEL ".%s: a model of the family %s, and of nanotron's only "
                   "LLaMA is known here (is_llama_config: true)",
                   t->file, line_of(t, pair->key),
                   (const char *)rpi_nanotron_node(t, pair->key)->data.scalar.value, family);
}

/* Checks the keys of a family; a key may occur twice. NULL: `key` is any marker. */
static rp_status check_key(const rpi_nanotron *t, const char *wanted, const char *family) {
    yaml_node_t *node = rpi_nanotron_node(t, find(t, MODEL));
    for (yaml_node_pair_t *pair = node->data.mapping.pairs.start;
         pair < node->data.mapping.pairs.top; pair++) {
        yaml_node_t *key = rpi_nanotron_node(t, pair->key);
        if (key->type != YAML_SCALAR_NODE) continue;
        const char *name = (const char *)key->data.scalar.value;
        char other[64];
        if ((wanted ? strcmp(name, wanted) != 0 : !is_marker(name)) || !is_said(t, pair->value))
            continue;
        snprintf(other, sizeof other, "%.*s", (int)strlen(name) - 10, name + 3);
        return refuse_family(t, pair, family ? family : other);
    }
    return RP_OK;
}

rp_status rpi_nanotron_check_family(const char *file, yaml_document_t *document) {
    rpi_nanotron t;
    if (!begin(file, document, &t)) return RP_OK;
    for (const rpi_nanotron_family *f = rpi_nanotron_families; f->key; f++)
        RP_TRY(check_key(&t, f->key, f->name));
    return check_key(&t, NULL, NULL);
}

/* ---- the model ---- */

/* -1: the vocabulary of the data. */
static const char *data_vocabulary(const rpi_nanotron *t, char text[RPI_YAML_NUMBER],
                                   int *from) {
    int stages = find(t, "data_stages");
    yaml_node_t *node = stages ? rpi_nanotron_node(t, stages) : NULL;
    if (!node || node->type != YAML_SEQUENCE_NODE ||
        node->data.sequence.items.start == node->data.sequence.items.top)
        return "-1";
    int size =
        rpi_nanotron_find(t, *node->data.sequence.items.start, "data.dataset.vocab_size");
    if (!*rpi_nanotron_text(t, size)) return "-1";
    *from = size;
    return rpi_nanotron_number(t, size, text);
}

/* id: of its node; 0: the file does not have it. */
static rp_status read_count(const rpi_nanotron *t, int id, const char *key, const char *text,
                            long long *out) {
    static const long long most = 1LL << 31;
    char *end = NULL;
    *out = strtoll(text, &end, 10);
    if (*text && !*end && *out > most)
        return RP_FAIL(INVALID, "%s:%zu: %s is %s, which is too large: %lld is the most",
                       t->file, line_of(t, id), key, text, most);
    if (*text && !*end && *out >= 1) return RP_OK;
    return RP_FAIL(INVALID, "%s:%zu: %s is %s; a whole number above 0 is wanted", t->file,
                   line_of(t, id), key, text);
}

/* Rounds the vocabulary up to a multiple. */
static rp_status add_vocabulary(rpi_nanotron *t, int id, const char *text) {
    char number[RPI_YAML_NUMBER];
    long long size, multiple = 1;
    int divisor = take(t, "model.make_vocab_size_divisible_by");
    const char *by = rpi_nanotron_number(t, divisor, number);
    if (*by)
        RP_TRY(read_count(t, divisor, "model.make_vocab_size_divisible_by", by, &multiple));
    if (strcmp(text, "-1") == 0) text = data_vocabulary(t, number, &id);
    RP_TRY(read_count(t, id, MODEL ".vocab_size", text, &size));
    rpi_append(t->model, sizeof t->model, "vocabulary=%lld",
               (size + multiple - 1) / multiple * multiple);
    return RP_OK;
}

static rp_status add_options(rpi_nanotron *t, int config) {
    rpi_append(t->model, sizeof t->model, "llama");
    for (const rpi_nanotron_option *o = rpi_nanotron_options; o->key; o++) {
        char number[RPI_YAML_NUMBER];
        int id = rpi_nanotron_take(t, config, o->key);
        const char *text = rpi_nanotron_number(t, id, number);
        if (!*text) text = o->absent;
        rpi_append(t->model, sizeof t->model, "%s", o == rpi_nanotron_options ? ":" : ",");
        if (strcmp(o->option, "vocabulary") == 0)
            RP_TRY(add_vocabulary(t, id, text));
        else
            rpi_append(t->model, sizeof t->model, "%s=%.40s", o->option, text);
    }
    return RP_OK;
}

/* Weights whose output is added to the residual start smaller, unless that is turned off. */
static rp_status add_start(rpi_nanotron *t) {
    static const char *const others[] = {"model.init_method.path", "model.init_method.use_mup"};
    char number[RPI_YAML_NUMBER];
    for (int i = 0; i < 2; i++) {
        int id = find(t, others[i]);
        if (id && !rpi_nanotron_is_among(t, id, "null|false"))
            return rpi_nanotron_refuse(t, id, others[i],
                                       "init_method.std, or --model hf:FOLDER,", NULL);
        (void)take(t, others[i]);
    }
    int scaling = take(t, "model.init_method.scaling_method");
    if (!rpi_nanotron_is_among(t, scaling, "NUM_LAYERS|NONE|null"))
        return rpi_nanotron_refuse(t, scaling, "model.init_method.scaling_method",
                                   "NUM_LAYERS and NONE", NULL);
    const char *std = rpi_nanotron_number(t, take(t, "model.init_method.std"), number);
    if (*std)
        rpi_append(t->model, sizeof t->model, ",init-std=%.40s,init-scaled=%s", std,
                   strcasecmp(rpi_nanotron_text(t, scaling), "none") == 0 ? "off" : "on");
    return RP_OK;
}

static rp_status translate_model(rpi_nanotron *t) {
    int config = find(t, MODEL);
    if (find(t, "model.name"))
        return RP_FAIL(INVALID, "%s:%zu: model.name and model.model_config: one of them",
                       t->file, line_of(t, find(t, "model.name")));
    RP_TRY(rpi_nanotron_take_all(t, config, rpi_nanotron_model, MODEL "."));
    RP_TRY(add_options(t, config));
    RP_TRY(rpi_nanotron_check_left(t, config, MODEL "."));
    RP_TRY(add_start(t));
    (void)take(t, MODEL);
    return rpi_nanotron_put(t, "model.name", t->model);
}

/* ---- keys of older releases ---- */

/* `data` was what a stage is: a dataset with its seed. Ours has other keys. */
static rp_status check_data(const rpi_nanotron *t) {
    int data = find(t, "data"), dataset = find(t, "data.dataset");
    bool is_old = dataset && (rpi_nanotron_is_mapping(t, dataset) ||
                              rpi_yaml_is_null(rpi_nanotron_node(t, dataset)));
    if (!data || !(is_old || find(t, "data.seed"))) return RP_OK;
    return RP_FAIL(INVALID,
                   "%s:%zu: data is a section of older releases; it is data_stages: [{name: "
                   "..., start_training_step: 1, data: ...}] now",
                   t->file, line_of(t, data));
}

/* ---- what they take where a file says nothing ---- */

static const char *number_text(long long number, char text[LONGEST_NUMBER]) {
    snprintf(text, LONGEST_NUMBER, "%lld", number);
    return text;
}

/* As the option reads it ("64K", too); 0 where it is no number, which the option refuses. */
static long long number_at(const rpi_nanotron *t, const char *path, long long absent) {
    char number[RPI_YAML_NUMBER];
    const char *text = rpi_nanotron_number(t, find(t, path), number);
    int64_t said;
    if (!*text) return absent;
    return rpi_parse_count(text, &said) == RP_OK ? said : 0;
}

static rp_status put_rates(const rpi_nanotron *t) {
    long long steps = number_at(t, "tokens.train_steps", 0);
    long long warm_up = number_at(t, RATE "lr_warmup_steps", 0);
    char text[LONGEST_NUMBER];
    int rate = find(t, RATE "learning_rate");
    const char *peak = text_at(t, RATE "learning_rate");
    RP_TRY(rpi_nanotron_put_absent(t, RATE "lr_decay_style", "linear"));
    if (*peak && !*text_at(t, RATE "min_decay_lr"))
        RP_TRY(rpi_nanotron_put_from(t, rate, RATE "min_decay_lr", peak));
    if (*text_at(t, RATE "lr_decay_steps") || steps <= warm_up) return RP_OK;
    return rpi_nanotron_put_from(t, find(t, "tokens.train_steps"), RATE "lr_decay_steps",
                                 number_text(steps - warm_up, text));
}

static rp_status put_evaluation(const rpi_nanotron *t) {
    char number[RPI_YAML_NUMBER];
    int id = take(t, "tokens.limit_val_batches");
    const char *text = rpi_nanotron_number(t, id, number);
    long long each = number_at(t, "tokens.micro_batch_size", 1), count;
    long long ranks = number_at(t, "parallelism.dp", 1);
    char *end = NULL, images[LONGEST_NUMBER];
    if (!*text || (strtoll(text, &end, 10) <= 0 && !*end)) return RP_OK;
    RP_TRY(read_count(t, id, "tokens.limit_val_batches", text, &count));
    if (__builtin_mul_overflow(count, each, &count) ||
        __builtin_mul_overflow(count, ranks, &count))
        return RP_FAIL(INVALID, "%s:%zu: tokens.limit_val_batches is too large", t->file,
                       line_of(t, id));
    return rpi_nanotron_put_from(t, id, "evaluation.images", number_text(count, images));
}

/* Their dp counts replicas, ours ranks: a replica has as many as tp, pp and cp make. A number
 * that its option does not take is left as it is: the option refuses it by its name. */
static rp_status put_ranks(const rpi_nanotron *t) {
    static const char *const axes[] = {"parallelism.dp", "parallelism.pp", "parallelism.tp",
                                       "parallelism.context_parallel_size"};
    long long ranks = 1;
    int shared = 0;
    char text[LONGEST_NUMBER];
    if (!*text_at(t, "parallelism.pp_engine")) (void)take(t, "parallelism.pp_engine");
    for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++) {
        long long said = number_at(t, axes[i], 1);
        if (said < 1 || said > RPI_MOST_RANKS) return RP_OK;
        if (i > 0 && said > 1 && !shared) shared = find(t, axes[i]);
        ranks *= ranks <= RPI_MOST_RANKS ? said : 1; /* more need not be counted */
    }
    if (!shared) return RP_OK;
    if (ranks > RPI_MOST_RANKS)
        return RP_FAIL(
            INVALID,
            "%s:%zu: parallelism.dp x pp x tp x context_parallel_size is more than %d "
            "ranks, which are the most",
            t->file, line_of(t, shared), RPI_MOST_RANKS);
    return rpi_nanotron_put(t, "parallelism.dp", number_text(ranks, text));
}

long long rpi_nanotron_replicas(yaml_document_t *document) {
    rpi_nanotron t;
    if (!begin("", document, &t)) return 0;
    bool is_alone = number_at(&t, "parallelism.pp", 1) <= 1 &&
                    number_at(&t, "parallelism.tp", 1) <= 1 &&
                    number_at(&t, "parallelism.context_parallel_size", 1) <= 1;
    return is_alone ? 0 : number_at(&t, "parallelism.dp", 1);
}

static rp_status put_defaults(const rpi_nanotron *t) {
    int bucket = take(t, "model.ddp_bucket_cap_mb");
    /* Theirs may save no last checkpoint; ours always does, and false would stop earlier ones.
     */
    (void)take(t, "checkpoints.save_final_state");
    if (*rpi_nanotron_text(t, bucket) && !*text_at(t, "communication.bucket_mb"))
        RP_TRY(rpi_nanotron_put_from(t, bucket, "communication.bucket_mb",
                                     rpi_nanotron_text(t, bucket)));
    if (strcasecmp(text_at(t, FACTORY "name"), "sgd") == 0)
        RP_TRY(rpi_nanotron_put_absent(t, FACTORY "momentum", "0"));
    RP_TRY(rpi_nanotron_put_absent(t, "general.seed", "42"));
    RP_TRY(rpi_nanotron_put_absent(t, "model.dtype", "bfloat16"));
    RP_TRY(put_evaluation(t));
    RP_TRY(put_ranks(t));
    return put_rates(t);
}

/* Where nothing is loaded or warmed up, it does not matter how. */
static void take_idle(const rpi_nanotron *t) {
    if (!*text_at(t, "checkpoints.resume_checkpoint_path")) {
        (void)take(t, "checkpoints.load_lr_scheduler");
        (void)take(t, "checkpoints.load_optimizer");
    }
    if (number_at(t, RATE "lr_warmup_steps", 0) == 0) (void)take(t, RATE "lr_warmup_style");
}

/* Of ranks that share layers, if there are. */
static rp_status put_tensor_mode(const rpi_nanotron *t) {
    if (strcasecmp(text_at(t, "parallelism.tp_mode"), "REDUCE_SCATTER") != 0) return RP_OK;
    return rpi_nanotron_put_absent(t, "parallelism.sequence_parallel", "true");
}

rp_status rpi_nanotron_translate(const char *file, yaml_document_t *document) {
    rpi_nanotron t;
    if (!begin(file, document, &t)) return RP_OK;
    RP_TRY(rpi_nanotron_check_moved(&t, t.root, rpi_nanotron_moved_keys, ""));
    RP_TRY(check_data(&t));
    take_idle(&t);
    RP_TRY(put_tensor_mode(&t));
    RP_TRY(rpi_nanotron_take_all(&t, t.root, rpi_nanotron_settings, ""));
    RP_TRY(translate_model(&t));
    RP_TRY(rpi_nanotron_stages(&t));
    return put_defaults(&t);
}
