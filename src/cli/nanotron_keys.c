#include "cli/nanotron_keys.h"

#include "base/suggest.h"

#include <stdio.h>
#include <string.h>

#define SECTION RPI_NANOTRON_SECTION
#define PARALLEL                                                                               \
    "ranks share the data, as dp says, the layers, as pp says, each layer, as tp says, and "   \
    "each sequence, as context_parallel_size says"

const rpi_nanotron_key rpi_nanotron_settings[] = {
    {"general.project", NULL, NULL},
    {"general.run", NULL, NULL},
    {"general.step", NULL, NULL},
    {"general.consumed_train_samples", NULL, NULL},
    {"general.benchmark_csv_path", "null", "redpoll report makes tables of a run"},
    {"general.ignore_sanity_checks", NULL, NULL},
    {"parallelism.expert_parallel_size", "1|null", PARALLEL},
    {"parallelism.tp_mode", "ALL_REDUCE|REDUCE_SCATTER|null", NULL},
    {"parallelism.tp_linear_async_communication", NULL, NULL},
    {"parallelism.tp_recompute_allgather", NULL, NULL},
    {"parallelism.moe_layer_recompute", NULL, NULL},   /* no layer has experts */
    {"optimizer.accumulate_grad_in_fp32", NULL, NULL}, /* they are added in fp32 in any case */
    {"optimizer.weight_decay_exclude_named_params", "null", "--decay weights leaves out norms"},
    {"optimizer.optimizer_factory.torch_adam_is_fused", NULL, NULL},
    {"optimizer.learning_rate_scheduler.lr_warmup_style", "linear|null", NULL},
    {"tokenizer.tokenizer_name_or_path", NULL, NULL}, /* tokens on disk say whose they are */
    {"tokenizer.tokenizer_revision", NULL, NULL},
    {"tokenizer.tokenizer_max_length", NULL, NULL},
    {"tokenizer", SECTION, NULL},
    {"tokens.limit_test_batches", NULL, NULL}, /* nothing there tests */
    {"checkpoints.checkpoints_path_is_shared_file_system", NULL, NULL},
    {"checkpoints.save_initial_state", "false|null", NULL},
    {"checkpoints.load_lr_scheduler", "true|null", "--resume goes on with all of a run"},
    {"checkpoints.load_optimizer", "true|null", "--resume goes on with all of a run"},
    {"logging.log_level", NULL, NULL},
    {"logging.log_level_replica", NULL, NULL},
    {"metrics_logging.log_level", "0|null", "metrics.jsonl has what is measured"},
    {"metrics_logging.log_detail_interval", NULL, NULL},
    {"metrics_logging", SECTION, NULL},
    {"profiler.profiler_export_path", "null", "--trace and --profile show a run"},
    {"profiler.wait", NULL, NULL},
    {"profiler.warmup", NULL, NULL},
    {"profiler.active", NULL, NULL},
    {"profiler.repeat", NULL, NULL},
    {"profiler.skip_first", NULL, NULL},
    {"profiler.record_shapes", NULL, NULL},
    {"profiler.profile_memory", NULL, NULL},
    {"profiler.with_stack", NULL, NULL},
    {"profiler.export_chrome_trace", NULL, NULL},
    {"profiler", SECTION, NULL},
    {"lighteval", "null", "nothing here runs LightEval"},
    {"s3_upload", "null", "checkpoints stay where --out says"},
    {0},
};

const rpi_nanotron_key rpi_nanotron_model[] = {
    {"bos_token_id", NULL, NULL},
    {"eos_token_id", NULL, NULL},
    {"pad_token_id", NULL, NULL},
    {"hidden_act", "silu", NULL},
    {"initializer_range", NULL, NULL}, /* init_method.std counts */
    {"is_llama_config", "true", NULL},
    {"pretraining_tp", NULL, NULL},
    {"rope_scaling", "null", "--model llama:rope-factor=N stretches positions"},
    {"rope_interleaved", "false|null", "positions turn the halves of a head"},
    {"attention_bias", "false|null", "--model llama:attention-bias=on has them"},
    {"use_cache", NULL, NULL},
    {"_attn_implementation", NULL, NULL},
    {"_fused_rotary_emb", NULL, NULL},
    {"_fused_rms_norm", NULL, NULL},
    {"_use_qkv_packed", NULL, NULL},
    {"_use_doc_masking", "false|null", "tokens see the documents before theirs"},
    {"_is_using_mup", "false|null", NULL},
    {"flex_attention_mask", "null", NULL},
    {"sliding_window_size", "null", "--model llama:window=N has windows"},
    {"no_rope_layer", "null", NULL},
    {"moe_config", "null", NULL},
    {"z_loss_enabled", "false|null", NULL},
    {"z_loss_coefficient", NULL, NULL},
    {0},
};

#define DATASET "data.dataset."
const rpi_nanotron_key rpi_nanotron_stage[] = {
    {"name", NULL, NULL},
    {"data.seed", NULL, NULL}, /* general.seed draws the order, too */
    {"data.num_loading_workers", NULL, NULL},
    /* Nanosets */
    {DATASET "dataset_weights", NULL, NULL}, /* of one folder */
    {DATASET "dataset_read_path", "null", "dataset_folder is where tokens are read"},
    {DATASET "tokenizer_name", NULL, NULL},
    {DATASET "vocab_size", NULL, NULL},
    {DATASET "token_size_in_bytes", NULL, NULL},
    {DATASET "return_positions", NULL, NULL}, /* they count from a sample's first token */
    {DATASET "skip_in_stream", NULL, NULL},   /* how what was seen is passed over */
    {DATASET "pad_samples_to_global_batch_size", "false|null",
     "an epoch ends with what is left"},
    {DATASET "dataset_max_tokens", "null", "all tokens of a folder are read"},
    {DATASET "shuffle_files", "false|null", "samples are shuffled, not files"},
    {DATASET "use_old_brrr_dataloader", "false|null", NULL},
    /* Text by its name */
    {DATASET "hf_dataset_splits", NULL, NULL},
    {DATASET "hf_dataset_config_name", NULL, NULL},
    {DATASET "dataset_processing_num_proc_per_process", NULL, NULL},
    {DATASET "dataset_overwrite_cache", NULL, NULL},
    {DATASET "text_column_name", NULL, NULL},
    /* Answers to questions */
    {DATASET "sft_dataloader", "false|null", "--data pairs:PATH has prompts and answers"},
    {DATASET "debug_max_samples", "null", NULL},
    {0},
};

const rpi_nanotron_option rpi_nanotron_options[] = {
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
    {0},
};

/* Experts first: a model of another family may have them. */
const rpi_nanotron_family rpi_nanotron_families[] = {
    {"moe_config", "mixture of experts (MoE)"},
    {"moe_num_experts", "mixture of experts (MoE)"},
    {"num_experts_per_tok", "mixture of experts (MoE)"},
    {"is_llamoe_config", "mixture of experts (MoE)"},
    {"is_qwen2_config", "Qwen2"},
    {"is_starcoder2_config", "Starcoder2"},
    {"is_mamba_config", "Mamba"},
    {"ssm_cfg", "Mamba"},
    {0},
};

#define FACTORY "optimizer.optimizer_factory."
const rpi_nanotron_moved rpi_nanotron_moved_keys[] = {
    {"optimizer.adam_beta1", FACTORY "adam_beta1"},
    {"optimizer.adam_beta2", FACTORY "adam_beta2"},
    {"optimizer.adam_eps", FACTORY "adam_eps"},
    {"optimizer.torch_adam_is_fused", FACTORY "torch_adam_is_fused"},
    {"optimizer.name", FACTORY "name"},
    {"parallelism.recompute_granularity", "parallelism.recompute_layer: true"},
    {"data.dataset_stages", "data_stages: [{name: ..., start_training_step: 1, data: ...}]"},
    {"checkpoints.s3", "s3_upload"},
    {"model.model_config.interleaved_rotary", "model.model_config.rope_interleaved"},
    {0},
};

const rpi_nanotron_moved rpi_nanotron_moved_in_stage[] = {
    {"training_steps", "start_training_step, the first of the stage"},
    {DATASET "dataset_path", "dataset_folder"},
    {0},
};

/* ---- the keys beside one ---- */

enum { MOST_NAMES = 96, LONGEST_NAME = 64, LONGEST_PATH = 256 };

typedef struct names {
    char at[MOST_NAMES][LONGEST_NAME];
    int count;
} names;

/* What stands behind a path that begins with `parent`, up to the next dot. */
static void add_name(names *n, const char *parent, const char *prefix, const char *path) {
    char whole[LONGEST_PATH], name[LONGEST_NAME];
    size_t length = strlen(parent);
    snprintf(whole, sizeof whole, "%s%s", prefix, path);
    if (strncmp(whole, parent, length) != 0 || n->count == MOST_NAMES) return;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(whole + length, "."), whole + length);
    for (int i = 0; i < n->count; i++)
        if (strcmp(n->at[i], name) == 0) return;
    if (*name) memcpy(n->at[n->count++], name, sizeof name);
}

static void list_names(const char *parent, const rpi_option *table, names *n) {
    static const char model[] = "model.model_config.";
    n->count = 0;
    for (const rpi_nanotron_key *k = rpi_nanotron_settings; k->path; k++)
        add_name(n, parent, "", k->path);
    for (const rpi_nanotron_key *k = rpi_nanotron_model; k->path; k++)
        add_name(n, parent, model, k->path);
    for (const rpi_nanotron_option *o = rpi_nanotron_options; o->key; o++)
        add_name(n, parent, model, o->key);
    for (const rpi_nanotron_key *k = rpi_nanotron_stage; k->path; k++)
        add_name(n, parent, "data_stages.", k->path);
    static const char *const others[] = {
        "data_stages.start_training_step",
        "data_stages.sequence_length",
        "data_stages.data.dataset.dataset_folder",
        "data_stages.data.dataset.hf_dataset_or_datasets",
        "model.init_method.std",
        "model.init_method.scaling_method",
        "model.init_method.path",
        "model.init_method.use_mup",
        "model.make_vocab_size_divisible_by",
        "model.ddp_bucket_cap_mb",
        "tokens.limit_val_batches",
        "checkpoints.save_final_state",
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        add_name(n, parent, "", others[i]);
    for (const rpi_option *o = table; o && o->name; o++)
        if (o->yaml) add_name(n, parent, "", o->yaml);
}

static const char *name_at(const void *context, int index) {
    const names *n = context;
    return index < n->count ? n->at[index] : NULL;
}

const char *rpi_nanotron_suggest(const char *path, const rpi_option *table, char *text,
                                 size_t bytes) {
    char parent[LONGEST_PATH];
    names n;
    const char *dot = strrchr(path, '.');
    snprintf(parent, sizeof parent, "%.*s", dot ? (int)(dot + 1 - path) : 0, path);
    list_names(parent, table, &n);
    return rpi_suggest_text(dot ? dot + 1 : path, name_at, &n, text, bytes);
}

bool rpi_nanotron_has_below(const char *path, const rpi_option *table) {
    char parent[LONGEST_PATH];
    names n;
    snprintf(parent, sizeof parent, "%s.", path);
    list_names(parent, table, &n);
    return n.count > 0;
}
