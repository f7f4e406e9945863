/* GPT-2 as transformers has it: GPT2LMHeadModel. Its linear layers are Conv1D, whose weights
 * are inputs x outputs; its head is the table of tokens, and one of both stands in a file. */
#include "train/huggingface/hf_family.h"

extern const rpi_hf_family rpi_hf_gpt2;

static const rpi_hf_option options[] = {
    {"layers", "n_layer", NULL, NULL},
    {"hidden", "n_embd", NULL, NULL},
    {"heads", "n_head", NULL, NULL},
    {"vocabulary", "vocab_size", NULL, NULL},
    {"positions", "n_positions", NULL, NULL},
    {"dropout", "resid_pdrop", "embd_pdrop", "0.1"},
    {"attention-dropout", "attn_pdrop", NULL, "0.1"},
    {"intermediate", "n_inner", NULL, ""},
    {"norm-epsilon", "layer_norm_epsilon", NULL, "1e-05"},
    {"activation", "activation_function", NULL, "gelu-tanh"},
    {0},
};

static const rpi_hf_alias aliases[] = {
    {"num_hidden_layers", "n_layer"},
    {"hidden_size", "n_embd"},
    {"num_attention_heads", "n_head"},
    {"max_position_embeddings", "n_positions"},
    {0},
};

static const rpi_hf_constant constants[] = {
    {"scale_attn_weights", "true", NULL},
    {"scale_attn_by_inverse_layer_idx", "false", NULL},
    {"add_cross_attention", "false", NULL},
    {"tie_word_embeddings", "true", NULL},
    {0},
};

static const rpi_hf_tensor tensors[] = {
    RPI_HF_TENSOR("wte.weight", "transformer.wte.weight"),
    RPI_HF_TENSOR("wpe.weight", "transformer.wpe.weight"),
    RPI_HF_TENSOR("h.*.ln_1.weight", "transformer.h.*.ln_1.weight"),
    RPI_HF_TENSOR("h.*.ln_1.bias", "transformer.h.*.ln_1.bias"),
    RPI_HF_TURNED("h.*.attn.c_attn.weight", "transformer.h.*.attn.c_attn.weight"),
    RPI_HF_TENSOR("h.*.attn.c_attn.bias", "transformer.h.*.attn.c_attn.bias"),
    RPI_HF_TURNED("h.*.attn.c_proj.weight", "transformer.h.*.attn.c_proj.weight"),
    RPI_HF_TENSOR("h.*.attn.c_proj.bias", "transformer.h.*.attn.c_proj.bias"),
    RPI_HF_TENSOR("h.*.ln_2.weight", "transformer.h.*.ln_2.weight"),
    RPI_HF_TENSOR("h.*.ln_2.bias", "transformer.h.*.ln_2.bias"),
    RPI_HF_TURNED("h.*.mlp.c_fc.weight", "transformer.h.*.mlp.c_fc.weight"),
    RPI_HF_TENSOR("h.*.mlp.c_fc.bias", "transformer.h.*.mlp.c_fc.bias"),
    RPI_HF_TURNED("h.*.mlp.c_proj.weight", "transformer.h.*.mlp.c_proj.weight"),
    RPI_HF_TENSOR("h.*.mlp.c_proj.bias", "transformer.h.*.mlp.c_proj.bias"),
    RPI_HF_TENSOR("ln_f.weight", "transformer.ln_f.weight"),
    RPI_HF_TENSOR("ln_f.bias", "transformer.ln_f.bias"),
    {0},
};

static const rpi_hf_tie ties[] = {
    {"transformer.wte.weight", "lm_head.weight", NULL},
    {0},
};

/* Masks of old files. */
static const char *const ignored[] = {"transformer.h.*.attn.bias",
                                      "transformer.h.*.attn.masked_bias", NULL};

const rpi_hf_family rpi_hf_gpt2 = {
    .model = "gpt2",
    .model_type = "gpt2",
    .architecture = "GPT2LMHeadModel",
    .prefix = "transformer.",
    .options = options,
    .aliases = aliases,
    .constants = constants,
    .text_end = 50256,
    .tensors = tensors,
    .ties = ties,
    .ignored = ignored,
};
