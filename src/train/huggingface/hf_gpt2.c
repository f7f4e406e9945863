/* GPT-2 as transformers has it: GPT2LMHeadModel. Its linear layers are Conv1D, whose weights
 * are inputs x outputs; its head is the table of tokens, and stands in no file. */
#include "train/huggingface/hf_family.h"

extern const rpi_hf_family rpi_hf_gpt2;

static const rpi_hf_size sizes[] = {
    {"layers", "n_layer"},        {"hidden", "n_embd"},         {"heads", "n_head"},
    {"vocabulary", "vocab_size"}, {"positions", "n_positions"}, {0},
};

static const rpi_hf_constant constants[] = {
    {"activation_function", "\"gelu_new\"", "\"gelu_pytorch_tanh\"", 0, NULL},
    {"layer_norm_epsilon", "1e-05", NULL, 0, NULL},
    {"n_inner", "null", NULL, 4, "n_embd"},
    {"scale_attn_weights", "true", NULL, 0, NULL},
    {"scale_attn_by_inverse_layer_idx", "false", NULL, 0, NULL},
    {"add_cross_attention", "false", NULL, 0, NULL},
    {"tie_word_embeddings", "true", NULL, 0, NULL},
    {0},
};

static const rpi_hf_tensor tensors[] = {
    {"wte.weight", "wte.weight", false},
    {"wpe.weight", "wpe.weight", false},
    {"h.*.ln_1.weight", "h.*.ln_1.weight", false},
    {"h.*.ln_1.bias", "h.*.ln_1.bias", false},
    {"h.*.attn.c_attn.weight", "h.*.attn.c_attn.weight", true},
    {"h.*.attn.c_attn.bias", "h.*.attn.c_attn.bias", false},
    {"h.*.attn.c_proj.weight", "h.*.attn.c_proj.weight", true},
    {"h.*.attn.c_proj.bias", "h.*.attn.c_proj.bias", false},
    {"h.*.ln_2.weight", "h.*.ln_2.weight", false},
    {"h.*.ln_2.bias", "h.*.ln_2.bias", false},
    {"h.*.mlp.c_fc.weight", "h.*.mlp.c_fc.weight", true},
    {"h.*.mlp.c_fc.bias", "h.*.mlp.c_fc.bias", false},
    {"h.*.mlp.c_proj.weight", "h.*.mlp.c_proj.weight", true},
    {"h.*.mlp.c_proj.bias", "h.*.mlp.c_proj.bias", false},
    {"ln_f.weight", "ln_f.weight", false},
    {"ln_f.bias", "ln_f.bias", false},
    {0},
};

/* Masks of old files, and the head. */
static const char *const ignored[] = {"h.*.attn.bias", "h.*.attn.masked_bias", "lm_head.weight",
                                      NULL};

const rpi_hf_family rpi_hf_gpt2 = {
    .model = "gpt2",
    .model_type = "gpt2",
    .architecture = "GPT2LMHeadModel",
    .prefix = "transformer.",
    .sizes = sizes,
    .constants = constants,
    .written = "{\"resid_pdrop\":0.0,\"embd_pdrop\":0.0,\"attn_pdrop\":0.0}",
    .text_end = 50256,
    .tensors = tensors,
    .ignored = ignored,
};
