#include "cli/nanotron.h"

#include "base/append.h"
#include "base/status.h"
#include "base/suggest.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { LONGEST_MODEL = 512, LONGEST_NUMBER = 32, LONGEST_DATA = 1024 };

typedef struct translation {
    const char *file;
    yaml_document_t *document;
    int root;
    size_t line;               /* of model_config, to which what is put in belongs */
    char model[LONGEST_MODEL]; /* "llama:hidden=..." */
} translation;

/* A key of theirs, and what it may say: words with '|' between them, "null" for nothing; NULL:
 * anything, as it changes nothing here. */
typedef struct allowed {
    const char *path, *words;
} allowed;

static const allowed settings[] = {
    {"general.project", NULL},
    {"general.run", NULL},
    {"general.step", NULL},
    {"general.consumed_train_samples", NULL},
    {"general.benchmark_csv_path", NULL},
    {"general.ignore_sanity_checks", NULL},
    {"parallelism.pp", "1"},
    {"parallelism.tp", "1"},
    {"parallelism.expert_parallel_size", "1"},
    {"parallelism.context_parallel_size", "1"},
    {"parallelism.pp_engine", "1f1b|afab|null"},
    {"parallelism.tp_mode", "ALL_REDUCE|REDUCE_SCATTER|null"},
    {"parallelism.tp_linear_async_communication", NULL},
    {"parallelism.tp_recompute_allgather", NULL},
    {"optimizer.zero_stage", "0"},
    {"optimizer.accumulate_grad_in_fp32", NULL}, /* they are added in fp32 in any case */
    {"optimizer.weight_decay_exclude_named_params", "null"},
    {"optimizer.optimizer_factory.torch_adam_is_fused", NULL},
    {"optimizer.learning_rate_scheduler.lr_warmup_style", "linear|null"},
    {"tokenizer.tokenizer_name_or_path", NULL}, /* tokens on disk say whose they are */
    {"tokenizer.tokenizer_revision", NULL},
    {"tokenizer.tokenizer_max_length", NULL},
    {"tokens.limit_test_batches", NULL},
    {"checkpoints.checkpoints_path_is_shared_file_system", NULL},
    {"checkpoints.save_initial_state", "false|null"},
    {"checkpoints.load_lr_scheduler", "true|null"},
    {"checkpoints.load_optimizer", "true|null"},
    {"logging.log_level", NULL},
    {"logging.log_level_replica", NULL},
    {"profiler", "null"},
    {"lighteval", "null"},
    {"s3_upload", "null"},
    {0},
};

static const allowed model_settings[] = {
    {"bos_token_id", NULL},         {"eos_token_id", NULL},
    {"pad_token_id", NULL},         {"hidden_act", "silu"},
    {"initializer_range", NULL}, /* init_method.std counts */
    {"is_llama_config", "true"},    {"pretraining_tp", NULL},
    {"rope_scaling", "null"},       {"rope_interleaved", "false"},
    {"attention_bias", "false"},    {"use_cache", NULL},
    {"_attn_implementation", NULL}, {"z_loss_enabled", "false"},
    {"z_loss_coefficient", NULL},   {0},
};

static const allowed stage_settings[] = {
    {"name", NULL},
    {"start_training_step", "1"},
    {"data.seed", NULL}, /* general.seed draws the order, too */
    {"data.num_loading_workers", NULL},
    {"data.dataset.dataset_weights", NULL}, /* of one folder */
    {"data.dataset.tokenizer_name", NULL},
    {"data.dataset.vocab_size", NULL},
    {"data.dataset.token_size_in_bytes", NULL},
    {"data.dataset.hf_dataset_splits", NULL},
    {"data.dataset.hf_dataset_config_name", NULL},
    {"data.dataset.dataset_processing_num_proc_per_process", NULL},
    {"data.dataset.dataset_overwrite_cache", NULL},
    {"data.dataset.text_column_name", NULL},
    {0},
};

/* Options of our llama: their key, and what it is where it is left out. */
static const struct {
    const char *key, *option, *absent;
} model_options[] = {
    {"num_hidden_layers", "layers", "32"},
    {"hidden_size", "hidden", "4096"},
    {"num_attention_heads", "heads", "32"},
    {"num_key_value_heads", "kv-heads", "0"},
    {"intermediate_size", "intermediate", "11008"},
    {"vocab_size", "vocabulary", "32000"},
    {"max_position_embeddings", "positions", "2048"},
    {"rope_theta", "rope-base", "10000"},
    {"rms_norm_eps", "norm-epsilon", "1e-6"},
    {"tie_word_embeddings", "tied", "off"},
};
enum { MODEL_OPTIONS = sizeof model_options / sizeof model_options[0] };

/* ---- nodes; numbers of them stay, pointers do not when nodes are added ---- */

static yaml_node_t *node_of(const translation *t, int id) {
    return yaml_document_get_node(t->document, id);
}

static bool is_mapping(const translation *t, int id) {
    return id && node_of(t, id)->type == YAML_MAPPING_NODE;
}

static bool is_empty(const translation *t, int mapping) {
    yaml_node_t *node = node_of(t, mapping);
    return node->data.mapping.pairs.start == node->data.mapping.pairs.top;
}

static yaml_node_pair_t *find_pair(const translation *t, int mapping, const char *key,
                                   size_t length) {
    if (!is_mapping(t, mapping)) return NULL;
    yaml_node_t *node = node_of(t, mapping);
    for (yaml_node_pair_t *pair = node->data.mapping.pairs.start;
         pair < node->data.mapping.pairs.top; pair++) {
        yaml_node_t *name = node_of(t, pair->key);
        if (name->type == YAML_SCALAR_NODE && name->data.scalar.length == length &&
            memcmp(name->data.scalar.value, key, length) == 0)
            return pair;
    }
    return NULL;
}

/* 0: there is no such key. */
static int find(const translation *t, int mapping, const char *path) {
    size_t length = strcspn(path, ".");
    yaml_node_pair_t *pair = find_pair(t, mapping, path, length);
    if (!pair || !path[length]) return pair ? pair->value : 0;
    return find(t, pair->value, path + length + 1);
}

/* Take a key out, with the mappings that hold nothing else. 0: there is none. */
/* NOLINTNEXTLINE(misc-no-recursion): as deep as a path of the tables above. */
static int take(const translation *t, int mapping, const char *path) {
    size_t length = strcspn(path, ".");
    yaml_node_pair_t *pair = find_pair(t, mapping, path, length);
    if (!pair) return 0;
    int value = pair->value;
    if (path[length]) {
        int inner = take(t, value, path + length + 1);
        if (!inner || !is_empty(t, value)) return inner;
        value = inner;
    }
    yaml_node_t *node = node_of(t, mapping);
    size_t behind = (size_t)(node->data.mapping.pairs.top - (pair + 1));
    memmove(pair, pair + 1, behind * sizeof *pair);
    node->data.mapping.pairs.top--;
    return value;
}

/* "" where a value is null, or no scalar. */
static const char *text_of(const translation *t, int id) {
    yaml_node_t *node = id ? node_of(t, id) : NULL;
    if (!node || node->type != YAML_SCALAR_NODE) return "";
    const char *text = (const char *)node->data.scalar.value;
    return strcmp(text, "null") == 0 || strcmp(text, "~") == 0 ? "" : text;
}

static rp_status refuse(const translation *t, int id, const char *path, const char *words) {
    yaml_node_t *node = node_of(t, id);
    const char *text = text_of(t, id);
    return RP_FAIL(INVALID, "%s:%zu: %s is %s; redpoll train has %s only", t->file,
                   node->start_mark.line + 1, path,
                   node->type != YAML_SCALAR_NODE ? "a list or a mapping"
                   : *text                        ? text
                                                  : "null",
                   words);
}

/* ---- putting in ---- */

static rp_status no_memory(const translation *t) {
    return RP_FAIL(NOMEM, "no memory to read %s", t->file);
}

static int mark(const translation *t, int id) {
    if (id) node_of(t, id)->start_mark.line = t->line;
    return id;
}

static int add_scalar(const translation *t, const char *text, size_t length) {
    return mark(t, yaml_document_add_scalar(t->document, NULL, (const yaml_char_t *)text,
                                            (int)length, YAML_PLAIN_SCALAR_STYLE));
}

/* A value, or what a key of theirs has as null, in its place. */
/* NOLINTNEXTLINE(misc-no-recursion): as deep as a path. */
static rp_status put(const translation *t, int mapping, const char *path, const char *text) {
    size_t length = strcspn(path, ".");
    yaml_node_pair_t *pair = find_pair(t, mapping, path, length);
    if (pair && path[length] && is_mapping(t, pair->value))
        return put(t, pair->value, path + length + 1, text);
    int value =
        path[length]
            ? mark(t, yaml_document_add_mapping(t->document, NULL, YAML_BLOCK_MAPPING_STYLE))
            : add_scalar(t, text, strlen(text));
    int key = value && !pair ? add_scalar(t, path, length) : 0;
    if (pair && value) find_pair(t, mapping, path, length)->value = value;
    if (!value || (!pair && (!key || !yaml_document_append_mapping_pair(t->document, mapping,
                                                                        key, value))))
        return no_memory(t);
    return path[length] ? put(t, value, path + length + 1, text) : RP_OK;
}

static rp_status put_absent(const translation *t, const char *path, const char *text) {
    return *text_of(t, find(t, t->root, path)) ? RP_OK : put(t, t->root, path, text);
}

static rp_status put_number(const translation *t, const char *path, long long number) {
    char text[LONGEST_NUMBER];
    snprintf(text, sizeof text, "%lld", number);
    return put(t, t->root, path, text);
}

static long long number_at(const translation *t, const char *path, long long absent) {
    const char *text = text_of(t, find(t, t->root, path));
    return *text ? strtoll(text, NULL, 10) : absent;
}

/* ---- what is the same for every run ---- */

static bool is_allowed(const char *text, const char *words) {
    size_t length = strlen(text);
    if (!length) text = "null", length = 4;
    for (const char *word = words; *word; word += *word == '|') {
        size_t end = strcspn(word, "|");
        if (end == length && strncasecmp(word, text, length) == 0) return true;
        word += end;
    }
    return false;
}

static rp_status take_settings(const translation *t, int mapping, const allowed *rows,
                               const char *prefix) {
    for (const allowed *row = rows; row->path; row++) {
        int id = take(t, mapping, row->path);
        char path[128];
        if (!id || !row->words) continue;
        yaml_node_t *node = node_of(t, id);
        bool is_nothing = node->type == YAML_SEQUENCE_NODE &&
                          node->data.sequence.items.start == node->data.sequence.items.top;
        if ((node->type == YAML_SCALAR_NODE || is_nothing) &&
            is_allowed(text_of(t, id), row->words))
            continue;
        snprintf(path, sizeof path, "%s%s", prefix, row->path);
        return refuse(t, id, path, row->words);
    }
    return RP_OK;
}

/* Is something left that is no key of theirs? */
static rp_status check_left(const translation *t, int mapping, const char *prefix,
                            rpi_name_at name_at, const void *names) {
    if (!is_mapping(t, mapping) || is_empty(t, mapping)) return RP_OK;
    yaml_node_t *key = node_of(t, node_of(t, mapping)->data.mapping.pairs.start->key);
    const char *name = key->type == YAML_SCALAR_NODE ? (char *)key->data.scalar.value : "?";
    char hint[160];
    return RP_FAIL(INVALID, "%s:%zu: unknown key '%s%.100s'%s", t->file,
                   key->start_mark.line + 1, prefix, name,
                   rpi_suggest_text(name, name_at, names, hint, sizeof hint));
}

static const char *allowed_at(const void *context, int index) {
    return ((const allowed *)context)[index].path;
}

static const char *model_key_at(const void *context, int index) {
    (void)context;
    return index < MODEL_OPTIONS ? model_options[index].key
                                 : model_settings[index - MODEL_OPTIONS].path;
}

/* ---- the model ---- */

/* The vocabulary is filled up to a multiple. */
static rp_status add_vocabulary(translation *t, const char *text) {
    long long size = strtoll(text, NULL, 10);
    const char *by = text_of(t, take(t, t->root, "model.make_vocab_size_divisible_by"));
    long long multiple = *by ? strtoll(by, NULL, 10) : 1;
    if (size < 1 || multiple < 1 || size > 1LL << 32 || multiple > 1LL << 32)
        return RP_FAIL(INVALID,
                       "%s:%zu: vocab_size is %s, and make_vocab_size_divisible_by %s; whole "
                       "numbers above 0",
                       t->file, t->line + 1, text, *by ? by : "1");
    rpi_append(t->model, sizeof t->model, "vocabulary=%lld",
               (size + multiple - 1) / multiple * multiple);
    return RP_OK;
}

static rp_status add_options(translation *t, int config) {
    rpi_append(t->model, sizeof t->model, "llama");
    for (int i = 0; i < MODEL_OPTIONS; i++) {
        const char *text = text_of(t, take(t, config, model_options[i].key));
        if (!*text) text = model_options[i].absent;
        rpi_append(t->model, sizeof t->model, "%s", i ? "," : ":");
        if (strcmp(model_options[i].option, "vocabulary") == 0)
            RP_TRY(add_vocabulary(t, text));
        else
            rpi_append(t->model, sizeof t->model, "%s=%.40s", model_options[i].option, text);
    }
    return RP_OK;
}

/* Weights whose output is added to the residual start with less, unless that is turned off. */
static rp_status add_start(translation *t) {
    static const char *const others[] = {"model.init_method.path", "model.init_method.use_mup"};
    for (int i = 0; i < 2; i++) {
        int id = find(t, t->root, others[i]);
        if (id) return refuse(t, id, others[i], "init_method.std, or --model hf:FOLDER,");
    }
    int scaling = take(t, t->root, "model.init_method.scaling_method");
    if (!is_allowed(text_of(t, scaling), "NUM_LAYERS|NONE|null"))
        return refuse(t, scaling, "model.init_method.scaling_method", "NUM_LAYERS and NONE");
    const char *std = text_of(t, take(t, t->root, "model.init_method.std"));
    if (*std)
        rpi_append(t->model, sizeof t->model, ",init-std=%.40s,init-scaled=%s", std,
                   strcasecmp(text_of(t, scaling), "none") == 0 ? "off" : "on");
    return RP_OK;
}

static rp_status translate_model(translation *t, int config) {
    if (find(t, t->root, "model.name"))
        return RP_FAIL(INVALID, "%s:%zu: model.name and model.model_config: one of them",
                       t->file, t->line + 1);
    RP_TRY(take_settings(t, config, model_settings, "model.model_config."));
    RP_TRY(add_options(t, config));
    RP_TRY(check_left(t, config, "model.model_config.", model_key_at, NULL));
    RP_TRY(add_start(t));
    (void)take(t, t->root, "model.model_config");
    return put(t, t->root, "model.name", t->model);
}

/* ---- the data ---- */

static rp_status put_data(const translation *t, int stage) {
    char text[LONGEST_DATA];
    int folder = take(t, stage, "data.dataset.dataset_folder");
    /* Text that they read by its name is to be tokenized first, and lies where it is said. */
    if (!folder) folder = take(t, stage, "data.dataset.hf_dataset_or_datasets");
    if (!folder) return RP_OK;
    yaml_node_t *node = node_of(t, folder);
    if (node->type == YAML_SEQUENCE_NODE &&
        node->data.sequence.items.top - node->data.sequence.items.start == 1)
        folder = *node->data.sequence.items.start;
    if (!*text_of(t, folder)) return refuse(t, folder, "dataset", "one folder of tokens");
    snprintf(text, sizeof text, "tokens:%s", text_of(t, folder));
    return put_absent(t, "data.dataset", text);
}

static rp_status translate_data(const translation *t) {
    int stages = find(t, t->root, "data_stages");
    yaml_node_t *node = stages ? node_of(t, stages) : NULL;
    if (!node) return RP_OK;
    (void)take(t, t->root, "data_stages");
    if (node->type == YAML_SCALAR_NODE && !*text_of(t, stages)) return RP_OK;
    if (node->type != YAML_SEQUENCE_NODE ||
        node->data.sequence.items.top - node->data.sequence.items.start != 1)
        return refuse(t, stages, "data_stages", "one stage");
    int stage = *node->data.sequence.items.start;
    if (!is_mapping(t, stage)) return refuse(t, stage, "data_stages", "one stage");
    RP_TRY(put_data(t, stage));
    int dataset = find(t, stage, "data.dataset");
    if (dataset && !is_mapping(t, dataset)) (void)take(t, stage, "data.dataset");
    RP_TRY(take_settings(t, stage, stage_settings, "data_stages."));
    return check_left(t, stage, "data_stages.", allowed_at, stage_settings);
}

/* ---- what they take where a file says nothing ---- */

#define FACTORY "optimizer.optimizer_factory."
#define RATE    "optimizer.learning_rate_scheduler."

static rp_status put_rates(const translation *t) {
    const char *peak = text_of(t, find(t, t->root, RATE "learning_rate"));
    long long steps = number_at(t, "tokens.train_steps", 0);
    long long warm_up = number_at(t, RATE "lr_warmup_steps", 0);
    RP_TRY(put_absent(t, RATE "lr_decay_style", "linear"));
    if (*peak) RP_TRY(put_absent(t, RATE "min_decay_lr", peak));
    if (*text_of(t, find(t, t->root, RATE "lr_decay_steps")) || steps <= warm_up) return RP_OK;
    return put_number(t, RATE "lr_decay_steps", steps - warm_up);
}

static rp_status put_evaluation(const translation *t) {
    const char *batches = text_of(t, take(t, t->root, "tokens.limit_val_batches"));
    long long count = strtoll(batches, NULL, 10);
    if (count <= 0) return RP_OK;
    return put_number(t, "evaluation.images",
                      count * number_at(t, "tokens.micro_batch_size", 1) *
                          number_at(t, "parallelism.dp", 1));
}

static rp_status put_defaults(const translation *t) {
    int bucket = take(t, t->root, "model.ddp_bucket_cap_mb");
    /* They save a last checkpoint or not; we do, and false would stop those on the way. */
    (void)take(t, t->root, "checkpoints.save_final_state");
    if (*text_of(t, bucket))
        RP_TRY(put_absent(t, "communication.bucket_mb", text_of(t, bucket)));
    if (strcasecmp(text_of(t, find(t, t->root, FACTORY "name")), "sgd") == 0)
        RP_TRY(put_absent(t, FACTORY "momentum", "0"));
    RP_TRY(put_absent(t, "general.seed", "42"));
    RP_TRY(put_absent(t, "model.dtype", "bfloat16"));
    RP_TRY(put_evaluation(t));
    return put_rates(t);
}

rp_status rpi_nanotron_translate(const char *file, yaml_document_t *document) {
    translation t = {.file = file, .document = document};
    yaml_node_t *root = yaml_document_get_root_node(document);
    if (!root || root->type != YAML_MAPPING_NODE) return RP_OK;
    t.root = (int)(root - document->nodes.start) + 1;
    int config = find(&t, t.root, "model.model_config");
    if (!is_mapping(&t, config)) return RP_OK;
    t.line = node_of(&t, config)->start_mark.line;
    RP_TRY(translate_model(&t, config));
    RP_TRY(translate_data(&t));
    RP_TRY(take_settings(&t, t.root, settings, ""));
    return put_defaults(&t);
}
