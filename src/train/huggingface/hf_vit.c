/* Vision transformers as transformers has them: ViTForImageClassification. Queries, keys and
 * values are three matrices there and one here, whose names are torchvision's. */
#include "train/huggingface/hf_family.h"

extern const rpi_hf_family rpi_hf_vit, rpi_hf_vit_b16;

static const rpi_hf_option options[] = {
    {"layers", "num_hidden_layers", NULL, NULL},
    {"hidden", "hidden_size", NULL, NULL},
    {"heads", "num_attention_heads", NULL, NULL},
    {"patch", "patch_size", NULL, "16"},
    {"image", "image_size", NULL, "224"},
    {"dropout", "hidden_dropout_prob", NULL, ""},
    {"attention-dropout", "attention_probs_dropout_prob", NULL, ""},
    {"norm-epsilon", "layer_norm_eps", NULL, "1e-12"},
    {"activation", "hidden_act", NULL, "gelu"},
    {"intermediate", "intermediate_size", NULL, "3072"},
    {0},
};

static const rpi_hf_constant constants[] = {
    {"qkv_bias", "true", NULL},
    {0},
};

#define LAYER "encoder.layers.encoder_layer_*."
#define BLOCK "vit.encoder.layer.*."
#define THIRD(kind, name, index)                                                               \
    {                                                                                          \
        .ours = LAYER "self_attention.in_proj_" kind,                                          \
        .theirs = BLOCK "attention.attention." name "." kind, .part = (index), .parts = 3      \
    }
#define BOTH(ours, theirs)                                                                     \
    RPI_HF_TENSOR(ours ".weight", theirs ".weight"), RPI_HF_TENSOR(ours ".bias", theirs ".bia" \
                                                                                        "s")
#define HEAD(kind)                                                                             \
    { .ours = "heads.head." kind, .theirs = "classifier." kind, .is_for_data = true }

static const rpi_hf_tensor tensors[] = {
    RPI_HF_TENSOR("class_token", "vit.embeddings.cls_token"),
    RPI_HF_TENSOR("encoder.pos_embedding", "vit.embeddings.position_embeddings"),
    BOTH("conv_proj", "vit.embeddings.patch_embeddings.projection"),
    BOTH(LAYER "ln_1", BLOCK "layernorm_before"),
    THIRD("weight", "query", 0),
    THIRD("weight", "key", 1),
    THIRD("weight", "value", 2),
    THIRD("bias", "query", 0),
    THIRD("bias", "key", 1),
    THIRD("bias", "value", 2),
    BOTH(LAYER "self_attention.out_proj", BLOCK "attention.output.dense"),
    BOTH(LAYER "ln_2", BLOCK "layernorm_after"),
    BOTH(LAYER "mlp.0", BLOCK "intermediate.dense"),
    BOTH(LAYER "mlp.3", BLOCK "output.dense"),
    BOTH("encoder.ln", "vit.layernorm"),
    HEAD("weight"),
    HEAD("bias"),
    {0},
};

static const char *const heads[] = {"classifier.", NULL};

static const char *const ignored[] = {"vit.pooler.dense.weight", "vit.pooler.dense.bias",
                                      "vit.embeddings.mask_token", NULL};

#define VIT                                                                                    \
    .model_type = "vit", .architecture = "ViTForImageClassification", .prefix = "vit.",        \
    .options = options, .constants = constants, .sees_pictures = true, .tensors = tensors,     \
    .heads = heads, .ignored = ignored

const rpi_hf_family rpi_hf_vit = {VIT, .model = "vit"};
/* The same under the name of its largest size. */
const rpi_hf_family rpi_hf_vit_b16 = {VIT, .model = "vit-b16"};
