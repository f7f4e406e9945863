/* Files of nanotron, as its users have them, read by a table with our keys. */
#include "cli/config.h"

#include "harness/check.h"

#include <stdlib.h>

enum { KEYS = 24, LONGEST = 8192 };

typedef struct found {
    const char *at[KEYS];
} found;

#define KEY(index, yaml)                                                                       \
    {                                                                                          \
        yaml, NULL, yaml, RPI_OPTION_TEXT, (index) * sizeof(const char *), NULL, 0, 0, "X",    \
            yaml, NULL                                                                         \
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
    KEY(9, "parallelism.dp"),
    KEY(10, "optimizer.weight_decay"),
    KEY(11, "optimizer.clip_grad"),
    KEY(12, "optimizer.optimizer_factory.name"),
    KEY(13, "optimizer.optimizer_factory.momentum"),
    KEY(14, "optimizer.optimizer_factory.adam_beta2"),
    KEY(15, RATE "learning_rate"),
    KEY(16, RATE "min_decay_lr"),
    KEY(17, RATE "lr_decay_style"),
    KEY(18, RATE "lr_decay_steps"),
    KEY(19, RATE "lr_warmup_steps"),
    KEY(20, "communication.bucket_mb"),
    KEY(21, "evaluation.images"),
    KEY(22, "checkpoints.checkpoint_interval"),
    KEY(23, "checkpoints.save_final_state"),
    {0},
};

static rp_status read_text(const char *text, found *f, rpi_config **config) {
    char path[512];
    snprintf(path, sizeof path, "%s/nanotron.yaml", check_folder());
    FILE *stream = fopen(path, "wb");
    if (!stream) return RP_FAIL(IO, "cannot write the test's file");
    fputs(text, stream);
    fclose(stream);
    *f = (found){{0}};
    RP_TRY(rpi_options_defaults(table, f));
    return rpi_config_read(path, table, f, config);
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
    "  zero_stage: 0\n"
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
               "data_stages: null\n",
        &f, &config));
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

static void data_have_one_stage(void) {
    static const struct {
        const char *text, *data;
    } good[] = {
        {"[{name: a, start_training_step: 1, data: {dataset: {dataset_folder: x/y}}}]",
         "tokens:x/y"},
        {"[{name: a, start_training_step: 1, data: {seed: 1, dataset: null}}]", ""},
        {"[{data: {dataset: {hf_dataset_or_datasets: a/b, hf_dataset_splits: train}}}]",
         "tokens:a/b"},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        char text[600];
        found f;
        rpi_config *config = NULL;
        snprintf(text, sizeof text, LITTLE "data_stages: %s\n", good[i].text);
        REQUIRE_OK(read_text(text, &f, &config));
        check_key(&f, "data.dataset", good[i].data);
        rpi_config_free(config);
    }
}

static void what_we_have_not_is_refused(void) {
    static const struct {
        const char *text, *part;
    } bad[] = {
        {LITTLE "parallelism: {pp: 2}\n",
         "nanotron.yaml:2: parallelism.pp is 2; redpoll train has 1 only"},
        {LITTLE "optimizer: {zero_stage: 1}\n", "optimizer.zero_stage is 1; redpoll train has"},
        {LITTLE "optimizer: {weight_decay_exclude_named_params: [a]}\n",
         "weight_decay_exclude_named_params is a list or a mapping; redpoll train has null"},
        {LITTLE "profiler: {wait: 1}\n", "profiler is a list or a mapping"},
        {LITTLE "parallelism: {pd: 1}\n", "unknown key 'parallelism.pd'; did you mean"},
        {LITTLE "data_stages: [{name: a}, {name: b}]\n",
         "nanotron.yaml:2: data_stages is a list or a mapping; redpoll train has one stage"},
        {LITTLE "data_stages: [{data: {dataset: {dataset_folder: [a, b]}}}]\n",
         "dataset is a list or a mapping; redpoll train has one folder of tokens only"},
        {LITTLE "data_stages: [{nmae: a}]\n", "unknown key 'data_stages.nmae'; did you mean"},
        {"model: {model_config: {hiden_size: 16}}\n",
         "nanotron.yaml:1: unknown key 'model.model_config.hiden_size'; did you mean "
         "'hidden_size'?"},
        {"model: {model_config: {hidden_act: gelu}}\n",
         "model.model_config.hidden_act is gelu; redpoll train has silu only"},
        {"model: {model_config: {is_qwen2_config: true}}\n",
         "unknown key 'model.model_config.is_qwen2_config'"},
        {"model: {model_config: {rope_scaling: {factor: 2}}}\n",
         "model.model_config.rope_scaling is a list or a mapping"},
        {"model: {model_config: {vocab_size: many}}\n", "vocab_size is many"},
        {"model: {model_config: {hidden_size: 16}, init_method: {path: x}}\n",
         "model.init_method.path is x; redpoll train has init_method.std, or --model hf:"},
        {"model: {model_config: {hidden_size: 16}, name: gpt2}\n",
         "nanotron.yaml:1: model.name and model.model_config: one of them"},
        {"model: {model_config: [1]}\n", "a list stands where a value is wanted"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        found f;
        rpi_config *config = NULL;
        CHECK_FAILS(read_text(bad[i].text, &f, &config), INVALID, bad[i].part);
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
      {"data have one stage", data_have_one_stage},
      {"what we have not is refused", what_we_have_not_is_refused},
      {"odd shapes are read", odd_shapes_are_read})
