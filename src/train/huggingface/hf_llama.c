/* LLaMA as transformers has it: LlamaForCausalLM; MistralForCausalLM, which is the same with a
 * window, Qwen2ForCausalLM, with biases of queries, keys and values, and Qwen3ForCausalLM, with
 * norms of each head's queries and keys. Names and layouts are ours, too: positions turn the
 * halves of a head, as its files have been permuted for; Meta's own files, which turn adjacent
 * pairs, are no Hugging Face folder. */
#include "train/huggingface/hf_family.h"

extern const rpi_hf_family rpi_hf_llama, rpi_hf_mistral, rpi_hf_qwen2, rpi_hf_qwen3;

/* Releases from 5 on keep the base of positions in an object of its own, whose word counts. */
#define OPTIONS(kv_heads, head)                                                                \
    {"layers", "num_hidden_layers", NULL, NULL}, {"hidden", "hidden_size", NULL, NULL},        \
        {"heads", "num_attention_heads", NULL, NULL},                                          \
        {"kv-heads", "num_key_value_heads", NULL, kv_heads}, {"head", "head_dim", NULL, head}, \
        {"intermediate", "intermediate_size", NULL, NULL},                                     \
        {"vocabulary", "vocab_size", NULL, NULL},                                              \
        {"positions", "max_position_embeddings", NULL, NULL},                                  \
        {"rope-base", "rope_parameters.rope_theta", "rope_theta", "10000"},                    \
        {"norm-epsilon", "rms_norm_eps", NULL, "1e-06"},                                       \
        {"attention-dropout", "attention_dropout", NULL, ""}, {                                \
        "tied", "tie_word_embeddings", NULL, "off"                                             \
    }

static const rpi_hf_option options[] = {
    OPTIONS("", ""),
    {"attention-bias", "attention_bias", NULL, ""},
    {"mlp-bias", "mlp_bias", NULL, ""},
    {0},
};

static const rpi_hf_option qwen2_options[] = {OPTIONS("32", ""), {0}};

static const rpi_hf_option qwen3_options[] = {
    OPTIONS("32", "128"),
    {"attention-bias", "attention_bias", NULL, ""},
    {0},
};

/* Later releases of it have no window: it is null, and the model one of llama's. */
static const rpi_hf_option mistral_options[] = {
    OPTIONS("8", ""),
    {"window", "sliding_window", NULL, "4096"},
    {0},
};

#define CONSTANTS                                                                              \
    {"hidden_act", "\"silu\"", "\"swish\""},                                                   \
        {"rope_parameters.partial_rotary_factor", NULL, "1"}, {                                \
        "partial_rotary_factor", NULL, "1"                                                     \
    }

static const rpi_hf_constant constants[] = {CONSTANTS, {0}};

#define LINEAR(name) RPI_HF_SAME(name ".weight"), RPI_HF_SAME(name ".bias")

static const rpi_hf_tensor tensors[] = {
    RPI_HF_SAME("model.embed_tokens.weight"),
    RPI_HF_SAME("model.layers.*.input_layernorm.weight"),
    LINEAR("model.layers.*.self_attn.q_proj"),
    LINEAR("model.layers.*.self_attn.k_proj"),
    LINEAR("model.layers.*.self_attn.v_proj"),
    LINEAR("model.layers.*.self_attn.o_proj"),
    RPI_HF_SAME("model.layers.*.self_attn.q_norm.weight"),
    RPI_HF_SAME("model.layers.*.self_attn.k_norm.weight"),
    RPI_HF_SAME("model.layers.*.post_attention_layernorm.weight"),
    LINEAR("model.layers.*.mlp.gate_proj"),
    LINEAR("model.layers.*.mlp.up_proj"),
    LINEAR("model.layers.*.mlp.down_proj"),
    RPI_HF_SAME("model.norm.weight"),
    RPI_HF_SAME("lm_head.weight"),
    {0},
};

static const rpi_hf_tie ties[] = {
    {"model.embed_tokens.weight", "lm_head.weight", NULL},
    {0},
};

static const char *const bare_lacks[] = {"lm_head.", NULL};

/* Angles of old files. */
static const char *const ignored[] = {"model.layers.*.self_attn.rotary_emb.inv_freq", NULL};

#define LLAMA                                                                                  \
    .model = "llama", .prefix = "model.", .is_rotary = true, .may_untie = true,                \
    .tensors = tensors, .ties = ties, .bare_lacks = bare_lacks, .ignored = ignored

const rpi_hf_family rpi_hf_llama = {
    LLAMA,
    .model_type = "llama",
    .architecture = "LlamaForCausalLM",
    .options = options,
    .constants = constants,
};

const rpi_hf_family rpi_hf_mistral = {
    LLAMA,
    .flag = "window",
    .model_type = "mistral",
    .architecture = "MistralForCausalLM",
    .options = mistral_options,
    .constants = constants,
};

const rpi_hf_family rpi_hf_qwen2 = {
    LLAMA,
    .flag = "qkv-bias",
    .model_type = "qwen2",
    .architecture = "Qwen2ForCausalLM",
    .options = qwen2_options,
    .constants = constants,
    .has_layer_types = true,
};

const rpi_hf_family rpi_hf_qwen3 = {
    LLAMA,
    .flag = "qk-norm",
    .model_type = "qwen3",
    .architecture = "Qwen3ForCausalLM",
    .options = qwen3_options,
    .constants = constants,
    .has_layer_types = true,
};
