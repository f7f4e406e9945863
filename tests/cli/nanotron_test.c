/* Files of nanotron, as its users have them, read by a table with our keys. */
#include "cli/config.h"

#include "base/append.h"
#include "harness/check.h"

#include <stdlib.h>

enum { KEYS = 30, LONGEST = 8192 };

typedef struct found {
    const char *at[KEYS];
} found;

/* What is refused is refused on the line that it comes from. */
static rp_status check_short(const char *text) {
    return strlen(text) <= 8 ? RP_OK : RP_FAIL(INVALID, "'%s' is too large", text);
}

#define KEY(index, yaml)                                                                       \
    {                                                                                          \
        yaml, NULL, yaml, RPI_OPTION_TEXT, (index) * sizeof(const char *), NULL, 0, 0, "X",    \
            yaml, NULL                                                                         \
    }
#define SHORT(index, yaml)                                                                     \
    {                                                                                          \
        yaml, NULL, yaml, RPI_OPTION_TEXT, (index) * sizeof(const char *), NULL, 0, 0, "X",    \
            yaml, check_short                                                                  \
    }
#define RATE "optimizer.learning_rate_scheduler."
static const rpi_option table[] = {
    KEY(0, "model.name"),
    KEY(1, "data.dataset"),
    KEY(2, "general.seed"),
    KEY(3, "model.dtype"),
    KEY(4, "tokens.train_steps"),
    KEY(5, "tokens.micro_batch_size"),
    KEY(6, "tokens.sequence_length"),
    KEY(7, "tokens.val_check_interval"),
    KEY(8, "tokens.batch_accumulation_per_replica"),
    SHORT(9, "parallelism.dp"),
    KEY(10, "optimizer.weight_decay"),
    KEY(11, "optimizer.clip_grad"),
    KEY(12, "optimizer.optimizer_factory.name"),
    KEY(13, "optimizer.optimizer_factory.momentum"),
    KEY(14, "optimizer.optimizer_factory.adam_beta2"),
    KEY(15, RATE "learning_rate"),
    SHORT(16, RATE "min_decay_lr"),
    KEY(17, RATE "lr_decay_style"),
    SHORT(18, RATE "lr_decay_steps"),
    KEY(19, RATE "lr_warmup_steps"),
    SHORT(20, "communication.bucket_mb"),
    SHORT(21, "evaluation.images"),
    KEY(22, "checkpoints.checkpoint_interval"),
    KEY(23, "checkpoints.save_final_state"),
    KEY(24, "parallelism.pp"),
    KEY(25, "parallelism.pp_engine"),
    KEY(26, "optimizer.zero_stage"),
    KEY(27, "parallelism.tp"),
    KEY(28, "parallelism.context_parallel_size"),
    KEY(29, "parallelism.sequence_parallel"),
    {0},
};

static rp_status read_text(const char *text, found *f, rpi_config **config) {
    *f = (found){{0}};
    RP_TRY(rpi_options_defaults(table, f));
    return rpi_config_read(check_text_file("nanotron.yaml", text), table, f, config);
}

static void check_key(const found *f, const char *yaml, const char *wanted) {
    for (int i = 0; i < KEYS; i++) {
        if (strcmp(table[i].yaml, yaml) != 0) continue;
        const char *text = f->at[i] ? f->at[i] : "";
        CHECK_MSG(strcmp(text, wanted) == 0, "%s is '%s', not '%s'", yaml, text, wanted);
        return;
    }
    CHECK_MSG(false, "the test has no key %s", yaml);
}

/* All that such a file has, in the order of one that nanotron itself has written. */
static const char whole[] =
    "checkpoints:\n"
    "  checkpoint_interval: 10\n"
    "  checkpoints_path_is_shared_file_system: false\n"
    "  save_final_state: false\n"
    "  save_initial_state: false\n"
    "data_stages:\n"
    "- data:\n"
    "    dataset:\n"
    "      dataset_folder: [data/kjv]\n"
    "      dataset_weights: [1]\n"
    "      token_size_in_bytes: 2\n"
    "      tokenizer_name: gpt2\n"
    "      vocab_size: 50257\n"
    "    num_loading_workers: 1\n"
    "    seed: 42\n"
    "  name: Stable Training Stage\n"
    "  start_training_step: 1\n"
    "general:\n"
    "  benchmark_csv_path: null\n"
    "  consumed_train_samples: null\n"
    "  ignore_sanity_checks: true\n"
    "  project: debug\n"
    "  run: tiny_llama_%date_%jobid\n"
    "  seed: 7\n"
    "  step: null\n"
    "lighteval: null\n"
    "logging:\n"
    "  log_level: info\n"
    "  log_level_replica: info\n"
    "model:\n"
    "  ddp_bucket_cap_mb: 25\n"
    "  dtype: float32\n"
    "  init_method: {std: 0.025}\n"
    "  make_vocab_size_divisible_by: 64\n"
    "  model_config:\n"
    "    bos_token_id: 1\n"
    "    eos_token_id: 2\n"
    "    hidden_act: silu\n"
    "    hidden_size: 16\n"
    "    initializer_range: 0.02\n"
    "    intermediate_size: 64\n"
    "    is_llama_config: true\n"
    "    max_position_embeddings: 256\n"
    "    num_attention_heads: 4\n"
    "    num_hidden_layers: 2\n"
    "    num_key_value_heads: 2\n"
    "    pad_token_id: null\n"
    "    pretraining_tp: 1\n"
    "    rms_norm_eps: 1.0e-05\n"
    "    rope_scaling: null\n"
    "    tie_word_embeddings: true\n"
    "    use_cache: true\n"
    "    vocab_size: 257\n"
    "optimizer:\n"
    "  accumulate_grad_in_fp32: true\n"
    "  clip_grad: 1.0\n"
    "  learning_rate_scheduler:\n"
    "    learning_rate: 0.0003\n"
    "    lr_decay_steps: 13\n"
    "    lr_decay_style: cosine\n"
    "    lr_warmup_steps: 2\n"
    "    lr_warmup_style: linear\n"
    "    min_decay_lr: 1.0e-05\n"
    "  optimizer_factory: {adam_beta2: 0.95, name: adamW, torch_adam_is_fused: true}\n"
    "  weight_decay: 0.01\n"
    "  weight_decay_exclude_named_params: []\n"
    "  zero_stage: 1\n"
    "parallelism:\n"
    "  dp: 2\n"
    "  expert_parallel_size: 1\n"
    "  pp: 1\n"
    "  pp_engine: 1f1b\n"
    "  tp: 1\n"
    "  tp_linear_async_communication: true\n"
    "  tp_mode: REDUCE_SCATTER\n"
    "profiler: null\n"
    "tokenizer: {tokenizer_max_length: null, tokenizer_name_or_path: gpt2}\n"
    "tokens:\n"
    "  batch_accumulation_per_replica: 4\n"
    "  limit_test_batches: 0\n"
    "  limit_val_batches: 3\n"
    "  micro_batch_size: 5\n"
    "  sequence_length: 256\n"
    "  train_steps: 15\n"
    "  val_check_interval: -1\n";

static void a_whole_file_is_read(void) {
    found f;
    rpi_config *config = NULL;
    REQUIRE_OK(read_text(whole, &f, &config));
    check_key(&f, "model.name",
              "llama:layers=2,hidden=16,heads=4,kv-heads=2,intermediate=64,vocabulary=320,"
              "positions=256,rope-base=10000,norm-epsilon=1.0e-05,tied=true,init-std=0.025,"
              "init-scaled=on");
    check_key(&f, "data.dataset", "tokens:data/kjv");
    check_key(&f, "general.seed", "7");
    check_key(&f, "model.dtype", "float32");
    check_key(&f, "tokens.batch_accumulation_per_replica", "4");
    check_key(&f, "parallelism.dp", "2");
    check_key(&f, "optimizer.zero_stage", "1");
    check_key(&f, "optimizer.optimizer_factory.adam_beta2", "0.95");
    check_key(&f, "optimizer.optimizer_factory.momentum", "");
    check_key(&f, RATE "min_decay_lr", "1.0e-05");
    check_key(&f, RATE "lr_decay_steps", "13");
    check_key(&f, "communication.bucket_mb", "25");
    check_key(&f, "evaluation.images", "30"); /* batches x rows of one x replicas */
    check_key(&f, "checkpoints.checkpoint_interval", "10");
    check_key(&f, "checkpoints.save_final_state", ""); /* ours would save nothing at all */
    rpi_config_free(config);
}

#define LITTLE "model: {model_config: {hidden_size: 16}}\n"

static void what_is_left_out_is_what_nanotron_takes(void) {
    found f;
    rpi_config *config = NULL;
    REQUIRE_OK(read_text(
        LITTLE "general: {seed: null}\n"
               "tokens: {train_steps: 100}\n"
               "optimizer:\n"
               "  optimizer_factory: {name: sgd}\n"
               "  learning_rate_scheduler: {learning_rate: 0.1, lr_warmup_steps: 10}\n"
               "parallelism: {dp: 3, pp: 2, tp: 4, tp_mode: REDUCE_SCATTER, pp_engine: null,\n"
               "  context_parallel_size: null,\n"
               "  tp_linear_async_communication: false}\n"
               "data_stages: null\n",
        &f, &config));
    check_key(&f, "parallelism.dp", "24"); /* ranks, not replicas */
    check_key(&f, "parallelism.tp", "4");
    check_key(&f, "parallelism.sequence_parallel", "true");
    CHECK_EQ(rpi_config_replicas(config), 3);
    check_key(&f, "parallelism.pp", "2");
    check_key(&f, "parallelism.pp_engine", "");
    check_key(&f, "model.name",
              "llama:layers=32,hidden=16,heads=32,kv-heads=0,intermediate=11008,"
              "vocabulary=32000,positions=2048,rope-base=10000,norm-epsilon=1e-6,tied=off");
    check_key(&f, "data.dataset", "");
    check_key(&f, "general.seed", "42");
    check_key(&f, "model.dtype", "bfloat16");
    check_key(&f, "optimizer.optimizer_factory.momentum", "0");
    check_key(&f, RATE "lr_decay_style", "linear");
    check_key(&f, RATE "lr_decay_steps", "90");
    check_key(&f, RATE "min_decay_lr", "0.1"); /* the rate stays */
    rpi_config_free(config);
}

#define NANOSET "data: {dataset: {dataset_folder: "

static void data_come_in_stages(void) {
    static const struct {
        const char *text, *data;
    } good[] = {
        {"[{name: a, start_training_step: 1, data: {dataset: {dataset_folder: x/y}}}]",
         "tokens:x/y"},
        {"[{name: a, start_training_step: 1, data: {seed: 1, dataset: null}}]", ""},
        {"[{data: {dataset: {hf_dataset_or_datasets: a/b, hf_dataset_splits: train}}}]",
         "tokens:a/b"},
        {"[]", ""},
        {"~", ""},
        /* One after the other, in the order of their steps. */
        {"[{name: a, start_training_step: 1, " NANOSET "x}}},"
         " {name: b, start_training_step: 10, " NANOSET "[y]}}}]",
         "stages:tokens:x;10=tokens:y"},
        {"[{name: c, start_training_step: 1_000, " NANOSET "z}}},"
         " {name: a, start_training_step: 1, " NANOSET "x}}},"
         " {name: b, start_training_step: 010, " NANOSET "y}}}]",
         "stages:tokens:x;8=tokens:y;1000=tokens:z"},
        {"[{start_training_step: 1, data: {dataset: ~}},"
         " {start_training_step: 5, data: {dataset: ~}}]",
         ""},
        {"[{start_training_step: 1, data: {dataset: null}},"
         " {start_training_step: 3, " NANOSET "x}}}]",
         ""},
        {"[{sequence_length: null, " NANOSET "x}}}]", "tokens:x"},
        {"[{sequence_length: 0x100, " NANOSET "x}}}]", "tokens:x"},
        {"[{sequence_length: 256, " NANOSET "[x]}}}]", "tokens:x"},
        {"[{start_training_step: 1000000000000, " NANOSET "y}}},"
         " {start_training_step: 1, " NANOSET "x}}}]",
         "stages:tokens:x;1000000000000=tokens:y"},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        char text[800];
        found f;
        rpi_config *config = NULL;
        snprintf(text, sizeof text, LITTLE "tokens: {sequence_length: 256}\ndata_stages: %s\n",
                 good[i].text);
        REQUIRE_OK(read_text(text, &f, &config));
        check_key(&f, "data.dataset", good[i].data);
        rpi_config_free(config);
    }
}

/* "[{start_training_step: 1, ...dataset_folder: FOLDER}, ...]", so many. */
static rp_status read_stages(int count, const char *folder, found *f, rpi_config **config) {
    static char text[1 << 17];
    snprintf(text, sizeof text, LITTLE "data_stages:\n");
    for (int i = 1; i <= count; i++)
        rpi_append(text, sizeof text, "- {start_training_step: %d, " NANOSET "%s}}}\n", i,
                   folder);
    *config = NULL;
    return read_text(text, f, config);
}

static void as_many_stages_as_there_is_room_for(void) {
    static char name[LONGEST];
    found f;
    rpi_config *config = NULL;
    REQUIRE_OK(read_stages(64, "x", &f, &config));
    CHECK(f.at[1] && strncmp(f.at[1], "stages:tokens:x;2=tokens:x;3=", 28) == 0);
    CHECK(f.at[1] && strcmp(f.at[1] + strlen(f.at[1]) - 12, ";64=tokens:x") == 0);
    rpi_config_free(config);
    CHECK_FAILS(read_stages(65, "x", &f, &config), INVALID,
                "nanotron.yaml:3: data_stages: too many stages");
    memset(name, 'x', 1000);
    rp_status status = read_stages(64, name, &f, &config);
    CHECK_MSG(status == RP_INVALID && strstr(rp_last_error()->message, "too long"), "%s",
              status ? rp_last_error()->message : "it is read");
    if (status == RP_OK) rpi_config_free(config);
}

/* ---- every key that nanotron's dataclasses have ---- */

/* Its path in the file, its value, and one that is refused; NULL: none is. Keys that stand in
 * our own tables are not here. */
static const struct {
    const char *path, *neutral, *refused;
} keys[] = {
    {"general.project", "p", NULL},
    {"general.run", "tiny_%date_%jobid", NULL},
    {"general.step", "null", NULL},
    {"general.consumed_train_samples", "~", NULL},
    {"general.benchmark_csv_path", "null", "bench.csv"},
    {"general.ignore_sanity_checks", "true", NULL},
    {"parallelism.expert_parallel_size", "1", "4"},
    {"parallelism.tp_mode", "REDUCE_SCATTER", "OTHER"},
    {"parallelism.tp_linear_async_communication", "true", NULL},
    {"parallelism.tp_recompute_allgather", "true", NULL},
    {"parallelism.moe_layer_recompute", "false", NULL},
    {"optimizer.accumulate_grad_in_fp32", "false", NULL},
    {"optimizer.weight_decay_exclude_named_params", "[]", "[bias]"},
    {"optimizer.optimizer_factory.torch_adam_is_fused", "true", NULL},
    {"optimizer.learning_rate_scheduler.lr_warmup_style", "constant", NULL}, /* of no steps */
    {"tokenizer", "null", NULL},
    {"tokenizer.tokenizer_name_or_path", "gpt2", NULL},
    {"tokenizer.tokenizer_revision", "null", NULL},
    {"tokenizer.tokenizer_max_length", "null", NULL},
    {"tokens.limit_test_batches", "0", NULL},
    {"tokens.limit_val_batches", "0", "many"},
    {"tokens.limit_val_batches", "-1", "1.5"},
    {"checkpoints.checkpoints_path_is_shared_file_system", "false", NULL},
    {"checkpoints.save_initial_state", "no", "yes"},
    {"checkpoints.save_final_state", "true", NULL},
    {"checkpoints.load_lr_scheduler", "false", NULL}, /* nothing is loaded */
    {"checkpoints.load_optimizer", "false", NULL},
    {"logging.log_level", "info", NULL},
    {"logging.log_level_replica", "info", NULL},
    {"metrics_logging", "null", NULL},
    {"metrics_logging.log_level", "0", "1"},
    {"metrics_logging.log_detail_interval", "10", NULL},
    {"profiler", "null", NULL},
    {"profiler.profiler_export_path", "null", "./tb"},
    {"profiler.wait", "1", NULL},
    {"profiler.skip_first", "3", NULL},
    {"profiler.with_stack", "true", NULL},
    {"profiler.export_chrome_trace", "false", NULL},
    {"lighteval", "null", "{batch_size: 16}"},
    {"s3_upload", "null", "{upload_s3_path: s3://x}"},
    {"model.make_vocab_size_divisible_by", "64", "0"},
    {"model.ddp_bucket_cap_mb", "120", NULL},
    {"model.init_method.std", "0.02", NULL},
    {"model.init_method.scaling_method", "NUM_LAYERS", "SPHERE"},
    {"model.init_method.path", "null", "x"},
    {"model.init_method.use_mup", "false", "true"},
    {"model.model_config.bos_token_id", "1", NULL},
    {"model.model_config.pad_token_id", "null", NULL},
    {"model.model_config.hidden_act", "silu", "gelu"},
    {"model.model_config.initializer_range", "0.02", NULL},
    {"model.model_config.is_llama_config", "true", "false"},
    {"model.model_config.pretraining_tp", "1", NULL},
    {"model.model_config.rope_scaling", "null", "{factor: 2}"},
    {"model.model_config.rope_interleaved", "false", "true"},
    {"model.model_config.attention_bias", "false", "true"},
    {"model.model_config.use_cache", "true", NULL},
    {"model.model_config._attn_implementation", "flash_attention_2", NULL},
    {"model.model_config._use_doc_masking", "off", "on"},
    {"model.model_config._fused_rms_norm", "true", NULL},
    {"model.model_config.flex_attention_mask", "null", "document"},
    {"model.model_config.sliding_window_size", "null", "20"},
    {"model.model_config.no_rope_layer", "null", "4"},
    {"model.model_config.moe_config", "null", NULL},
    {"model.model_config.z_loss_enabled", "false", "true"},
    {"model.model_config.z_loss_coefficient", "0.0001", NULL},
    {"data_stages.name", "Stable", NULL},
    {"data_stages.start_training_step", "1", "0"},
    {"data_stages.sequence_length", "null", "128"},
    {"data_stages.data.seed", "42", NULL},
    {"data_stages.data.num_loading_workers", "1", NULL},
    {"data_stages.data.dataset.dataset_folder", "[x]", "[x, y]"},
    {"data_stages.data.dataset.dataset_weights", "[1]", NULL},
    {"data_stages.data.dataset.dataset_read_path", "null", "/local"},
    {"data_stages.data.dataset.tokenizer_name", "gpt2", NULL},
    {"data_stages.data.dataset.vocab_size", "50257", NULL},
    {"data_stages.data.dataset.token_size_in_bytes", "2", NULL},
    {"data_stages.data.dataset.return_positions", "true", NULL},
    {"data_stages.data.dataset.skip_in_stream", "false", NULL},
    {"data_stages.data.dataset.pad_samples_to_global_batch_size", "false", "true"},
    {"data_stages.data.dataset.dataset_max_tokens", "null", "[1000]"},
    {"data_stages.data.dataset.shuffle_files", "false", "true"},
    {"data_stages.data.dataset.use_old_brrr_dataloader", "false", "true"},
    {"data_stages.data.dataset.hf_dataset_or_datasets", "a/b", "{a/b: 1.0}"},
    {"data_stages.data.dataset.hf_dataset_splits", "train", NULL},
    {"data_stages.data.dataset.hf_dataset_config_name", "null", NULL},
    {"data_stages.data.dataset.dataset_processing_num_proc_per_process", "1", NULL},
    {"data_stages.data.dataset.dataset_overwrite_cache", "false", NULL},
    {"data_stages.data.dataset.text_column_name", "text", NULL},
    {"data_stages.data.dataset.sft_dataloader", "false", "true"},
    {"data_stages.data.dataset.debug_max_samples", "null", "5"},
};

/* A file with one key more, in a line of its own below its sections. */
static void write_file(const char *path, const char *value, char *text, size_t bytes) {
    bool is_model = strncmp(path, "model.", 6) == 0;
    bool is_config = strncmp(path, "model.model_config.", 19) == 0;
    int depth = 0;
    text[0] = '\0';
    if (!is_model) rpi_append(text, bytes, LITTLE);
    for (const char *part = path;; depth++) {
        size_t length = strcspn(part, ".");
        bool is_last = !part[length];
        bool is_stage = depth == 1 && strncmp(path, "data_stages.", 12) == 0;
        rpi_append(text, bytes, "%*s%s%.*s: %s\n", 2 * depth, "", is_stage ? "- " : "",
                   (int)length, part, is_last ? value : "");
        if (is_last) break;
        part += length + 1;
        if (is_stage) depth++; /* what stands below it stands behind the dash */
    }
    if (is_config) rpi_append(text, bytes, "    hidden_size: 16\n");
    if (is_model && !is_config)
        rpi_append(text, bytes, "  model_config:\n    hidden_size: 16\n");
}

static void every_key_is_known(void) {
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        char text[800], part[200];
        found f;
        rpi_config *config = NULL;
        write_file(keys[i].path, keys[i].neutral, text, sizeof text);
        CHECK_MSG(read_text(text, &f, &config) == RP_OK, "%s: %s", keys[i].path,
                  rp_last_error()->message);
        rpi_config_free(config);
        config = NULL;
        if (!keys[i].refused) continue;
        write_file(keys[i].path, keys[i].refused, text, sizeof text);
        snprintf(part, sizeof part, ": %s is ", keys[i].path);
        CHECK_MSG(read_text(text, &f, &config) == RP_INVALID, "%s is taken: %s", keys[i].path,
                  keys[i].refused);
        CHECK_MSG(strstr(rp_last_error()->message, part), "'%s' lacks '%s'",
                  rp_last_error()->message, part);
    }
}

/* With a letter too many, whichever list of ours it stands in. */
static void every_key_is_suggested(void) {
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        char path[200], text[800], part[400];
        found f;
        rpi_config *config = NULL;
        const char *dot = strrchr(keys[i].path, '.');
        const char *last = dot ? dot + 1 : keys[i].path;
        if (strlen(last) < 5) continue; /* several may be near */
        snprintf(path, sizeof path, "%sq", keys[i].path);
        write_file(path, "1", text, sizeof text);
        snprintf(part, sizeof part, "unknown key '%s'; did you mean '%s'?", path, last);
        CHECK_FAILS(read_text(text, &f, &config), INVALID, part);
    }
}

static void what_we_have_not_is_refused(void) {
    static const struct {
        const char *text, *part;
    } bad[] = {
        {LITTLE "parallelism: {expert_parallel_size: 2}\n",
         "nanotron.yaml:2: parallelism.expert_parallel_size is 2; redpoll train "
         "has 1|null only: ranks share the data, as dp says, the layers, as pp says, each "
         "layer, as tp says, and each sequence, as context_parallel_size says"},
        {LITTLE "parallelism: {tp: 4000000000, dp: 4000000000}\n",
         "parallelism.dp: '4000000000' is too large"},
        {LITTLE "optimizer: {learning_rate_scheduler: {lr_warmup_steps: 3, lr_warmup_style: "
                "constant}}\n",
         "lr_warmup_style is constant; redpoll train has linear|null only"},
        {LITTLE "checkpoints: {resume_checkpoint_path: x, load_optimizer: false}\n",
         "checkpoints.load_optimizer is false; redpoll train has true|null only"},
        /* Unknown keys, to their full depth. */
        {LITTLE "parallelism: {pd: 1}\n", "unknown key 'parallelism.pd'; did you mean"},
        {LITTLE "parallelism: {tp_mod: 1}\n",
         "nanotron.yaml:2: unknown key 'parallelism.tp_mod'; did you mean 'tp_mode'?"},
        {LITTLE "optimzer: {zero_stage: 0}\n",
         "nanotron.yaml:2: unknown key 'optimzer'; did you mean 'optimizer'?"},
        {LITTLE "tokenizr: x\n", "unknown key 'tokenizr'; did you mean 'tokenizer'?"},
        {LITTLE "metrics_logging: {log_lvl: 0}\n",
         "unknown key 'metrics_logging.log_lvl'; did you mean 'log_level'?"},
        {LITTLE "data_stages: [{nmae: a}]\n",
         "unknown key 'data_stages.nmae'; did you mean 'name'?"},
        {LITTLE "data_stages:\n- name: a\n  data:\n    seed: 1\n    dataset:\n"
                "      dataset_folder: x\n      tokenizer_nam: y\n",
         "nanotron.yaml:8: unknown key 'data_stages.data.dataset.tokenizer_nam'; did you mean "
         "'tokenizer_name'?"},
        {LITTLE "data_stages: [{data: {sed: 1}}]\n",
         "unknown key 'data_stages.data.sed'; did you mean 'seed'?"},
        {LITTLE "data_stages: [{data: {dataset: x}}]\n",
         "keys and values are wanted below data_stages.data.dataset"},
        {"model: {model_config: {hiden_size: 16}}\n",
         "nanotron.yaml:1: unknown key 'model.model_config.hiden_size'; did you mean "
         "'hidden_size'?"},
        {"model: {model_config: {hidden_size: 16}, init_metod: {std: 1}}\n",
         "unknown key 'model.init_metod'; did you mean 'init_method'?"},
        /* Stages */
        {LITTLE "data_stages: [{name: a}, {name: b}]\n",
         "nanotron.yaml:2: data_stages: another has the same start_training_step"},
        {LITTLE "data_stages: [{start_training_step: 2}]\n",
         "nanotron.yaml:2: data_stages: none has start_training_step: 1"},
        {LITTLE "data_stages: [{start_training_step: 1}, {start_training_step: 3},\n"
                "  {start_training_step: 3}]\n",
         "data_stages: another has the same start_training_step"},
        {LITTLE "data_stages: [{start_training_step: 1000000000001}]\n",
         "data_stages.start_training_step is 1000000000001; redpoll train has whole numbers"},
        {LITTLE "data_stages: [{start_training_step: 1.5}]\n", "start_training_step is 1.5;"},
        {LITTLE "data_stages: [{start_training_step: ~}]\n", "start_training_step is null;"},
        {LITTLE "data_stages: [{start_training_step: [1]}]\n", "is a list or a mapping; red"},
        {LITTLE "data_stages: [{" NANOSET "[]}}}]\n", "one folder of tokens only"},
        {LITTLE "data_stages: [{" NANOSET "}}}]\n",
         "dataset_folder is null; redpoll train has"},
        {LITTLE "tokens: {sequence_length: 256}\ndata_stages: [{sequence_length: 128}]\n",
         "nanotron.yaml:3: data_stages.sequence_length is 128; redpoll train has 256 only: "
         "tokens.sequence_length is for all"},
        {LITTLE "data_stages: [{sequence_length: 128}]\n",
         "is 128; redpoll train has null only"},
        {LITTLE "data_stages: [{sequence_length: [1]}]\n",
         "sequence_length is a list or a map"},
        {LITTLE "data_stages: {name: a}\n",
         "data_stages is a list or a mapping; redpoll train"},
        {LITTLE "data_stages: [a]\n", "data_stages is a; redpoll train has a list of stages"},
        /* Other families */
        {"model: {model_config: {is_qwen2_config: true}}\n",
         "nanotron.yaml:1: model.model_config.is_qwen2_config: a model of the family Qwen2, "
         "and "
         "of nanotron's only LLaMA is known here"},
        {"model: {model_config: {is_starcoder2_config: yes, num_kv_heads: 2}}\n",
         "a model of the family Starcoder2"},
        {"model: {model_config: {d_model: 8, is_mamba_config: true, ssm_cfg: {d_conv: 4}}}\n",
         "a model of the family Mamba"},
        {"model: {model_config: {is_qwen2_config: true, moe_config: {top_k: 1}}}\n",
         "model.model_config.moe_config: a model of the family mixture of experts (MoE)"},
        {"model: {model_config: {moe_config: null, is_qwen2_config: true, moe_config: "
         "{top_k: 1}}}\n",
         "a model of the family mixture of experts (MoE)"},
        {"model: {model_config: {is_llamoe_config: true}}\n", "mixture of experts (MoE)"},
        {"model: {model_config: {moe_num_experts: 4}}\n", "mixture of experts (MoE)"},
        {"model: {model_config: {is_gpt3_config: true}}\n", "a model of the family gpt3"},
        /* Older releases */
        {LITTLE "optimizer: {adam_beta1: 0.9}\n",
         "nanotron.yaml:2: optimizer.adam_beta1 is a key of older releases; it is "
         "optimizer.optimizer_factory.adam_beta1 now"},
        {LITTLE "optimizer: {adam_eps: 1.0e-8}\n", "optimizer_factory.adam_eps now"},
        {LITTLE "optimizer: {torch_adam_is_fused: true}\n", "torch_adam_is_fused now"},
        {LITTLE "data: {seed: 42, dataset: {hf_dataset_or_datasets: x}}\n",
         "nanotron.yaml:2: data is a section of older releases; it is data_stages: [{name:"},
        {LITTLE "data:\n  dataset:\n  num_loading_workers: 1\n", "data is a section of older"},
        {LITTLE "data: {dataset_stages: [{name: a}]}\n",
         "data.dataset_stages is a key of older"},
        {LITTLE "data_stages: [{data: {dataset: {dataset_path: x.npy}}}]\n",
         "data_stages.data.dataset.dataset_path is a key of older releases; it is "
         "dataset_folder now"},
        {LITTLE "parallelism: {recompute_granularity: SELECTIVE}\n",
         "parallelism.recompute_granularity is a key of older releases; it is "
         "parallelism.recompute_layer: true now"},
        /* Numbers */
        {"model: {model_config: {vocab_size: many}}\n", "vocab_size is many; a whole number"},
        {"model: {model_config: {vocab_size: -1}}\n", "vocab_size is -1; a whole number"},
        {"model: {model_config: {vocab_size: 99999999999}}\n",
         "vocab_size is 99999999999, which is too large"},
        /* What is made of several keys is refused where the user wrote it. */
        {LITTLE "parallelism:\n  dp: 30000\n  pp: 3\n",
         "nanotron.yaml:4: parallelism.dp x pp x tp x context_parallel_size is more than 65536 "
         "ranks"},
        {LITTLE
         "parallelism: {dp: 65536, pp: 65536, tp: 65536, context_parallel_size: 65536}\n",
         "parallelism.dp x pp x tp x context_parallel_size is more than 65536 ranks"},
        /* One key alone is, by its name. */
        {LITTLE "parallelism:\n  pp: 9000\n  dp: 9000000000000000\n",
         "nanotron.yaml:4: parallelism.dp: '9000000000000000' is too large"},
        {LITTLE "tokens:\n  micro_batch_size: 2\n  limit_val_batches: 99999999\n",
         "nanotron.yaml:4: evaluation.images: "},
        {LITTLE "tokens:\n  micro_batch_size: 2\n  limit_val_batches: many\n",
         "nanotron.yaml:4: tokens.limit_val_batches is many; a whole number above 0"},
        {LITTLE "tokens:\n  micro_batch_size: 2\n  train_steps: 1000000000\n",
         "nanotron.yaml:4: " RATE "lr_decay_steps: "},
        {LITTLE "optimizer:\n  learning_rate_scheduler:\n    learning_rate: 0.00000000001\n",
         "nanotron.yaml:4: " RATE "min_decay_lr: "},
        {"model:\n  model_config:\n    hidden_size: 16\n  ddp_bucket_cap_mb: 123456789\n",
         "nanotron.yaml:4: communication.bucket_mb: "},
        {"model:\n  model_config:\n    hidden_size: 16\n    vocab_size: 0\n",
         "nanotron.yaml:4: model.model_config.vocab_size is 0"},
        {"model:\n  make_vocab_size_divisible_by: 0\n  model_config: {hidden_size: 16}\n",
         "nanotron.yaml:2: model.make_vocab_size_divisible_by is 0"},
        {"model:\n  model_config:\n    hidden_size: 16\n  name: gpt2\n",
         "nanotron.yaml:4: model.name and model.model_config"},
        {"model: {model_config: {hidden_size: 16}, name: gpt2}\n",
         "nanotron.yaml:1: model.name and model.model_config: one of them"},
        {"model: {model_config: {hidden_size: 16, hidden_size: 8}}\n",
         "nanotron.yaml:1: this key is written twice: hidden_size"},
        {"model: {model_config: [1]}\n", "a list stands where a value is wanted"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        found f;
        rpi_config *config = NULL;
        CHECK_FAILS(read_text(bad[i].text, &f, &config), INVALID, bad[i].part);
    }
}

/* ---- the table: add a row. Numbers of which others are made, as options read them; what is
 * none is left for its option to refuse ---- */

static void numbers_are_those_of_options(void) {
    static const struct {
        const char *text, *key, *value;
    } rows[] = {
        {"parallelism: {dp: 1K, pp: 2}", "parallelism.dp", "2048"},
        {"parallelism: {dp: 3, tp: 0x10}", "parallelism.dp", "48"},
        {"parallelism: {dp: 3, pp: null, context_parallel_size: 4}", "parallelism.dp", "12"},
        {"parallelism: {dp: 1.5, pp: 2}", "parallelism.dp", "1.5"},
        {"parallelism: {dp: two, pp: 2}", "parallelism.dp", "two"},
        {"parallelism: {dp: -3, pp: 2}", "parallelism.dp", "-3"},
        {"parallelism: {dp: 0, pp: 2}", "parallelism.dp", "0"},
        {"parallelism: {dp: 2, pp: 2x}", "parallelism.dp", "2"},
        {"parallelism: {dp: 2, tp: 9000000000000000}", "parallelism.dp", "2"},
        {"parallelism: {dp: 2, tp: -4}", "parallelism.dp", "2"},
        {"tokens: {train_steps: 1K}", RATE "lr_decay_steps", "1024"},
        {"tokens: {micro_batch_size: 1K, limit_val_batches: 3}", "evaluation.images", "3072"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[400];
        found f;
        rpi_config *config = NULL;
        snprintf(text, sizeof text, LITTLE "%s\n", rows[i].text);
        REQUIRE_OK(read_text(text, &f, &config));
        check_key(&f, rows[i].key, rows[i].value);
        rpi_config_free(config);
    }
}

/* YAML's words in the places that are looked at before our options are. */
static void words_are_yamls(void) {
    static const struct {
        const char *config, *model;
    } rows[] = {
        {"{hidden_size: 0x10, vocab_size: 1_000}", "hidden=16,heads=32,kv-heads=0,intermediate="
                                                   "11008,vocabulary=1000,"},
        {"{hidden_size: 16, num_key_value_heads: ~, tie_word_embeddings: yes}",
         "hidden=16,heads=32,kv-heads=0,intermediate=11008,vocabulary=32000,positions=2048,"
         "rope-base=10000,norm-epsilon=1e-6,tied=yes"},
        {"{hidden_size: 16, attention_bias: no, rope_scaling: Null, rope_theta: 1_000.5}",
         "positions=2048,rope-base=1000.5,"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[400];
        found f;
        rpi_config *config = NULL;
        snprintf(text, sizeof text, "model: {model_config: %s}\n", rows[i].config);
        REQUIRE_OK(read_text(text, &f, &config));
        CHECK_MSG(strstr(f.at[0], rows[i].model), "'%s' lacks '%s'", f.at[0], rows[i].model);
        rpi_config_free(config);
    }
}

/* Sections may be empty, or one node under two names. */
static void odd_shapes_are_read(void) {
    static const char *const good[] = {
        LITTLE "optimizer:\ntokens: {}\n",
        LITTLE "general: &g {seed: 1}\n",
        "model: {model_config: {}}\n",
        "model: {model_config: &m {hidden_size: 16, pad_token_id: null}}\n",
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        found f;
        rpi_config *config = NULL;
        CHECK_OK(read_text(good[i], &f, &config));
        rpi_config_free(config);
    }
}

CASES({"a whole file is read", a_whole_file_is_read},
      {"what is left out is what nanotron takes", what_is_left_out_is_what_nanotron_takes},
      {"data come in stages", data_come_in_stages},
      {"as many stages as there is room for", as_many_stages_as_there_is_room_for},
      {"every key is known", every_key_is_known},
      {"every key is suggested", every_key_is_suggested}, {"words are YAML's", words_are_yamls},
      {"numbers are those of options", numbers_are_those_of_options},
      {"what we have not is refused", what_we_have_not_is_refused},
      {"odd shapes are read", odd_shapes_are_read})
