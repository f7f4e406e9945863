/* Vision transformers: an encoder over the patches of a picture.
 *
 *     x = [class; patches of the picture through one linear map] + positions
 *     for each layer:
 *         x = x + out_proj(attention(in_proj(ln_1(x))))     each token sees all
 *         x = x + mlp.3(gelu(mlp.0(ln_2(x))))               four times as wide inside
 *     logits = head(ln(x)[class])
 *
 * Dosovitskiy and others, "An image is worth 16x16 words: transformers for image recognition at
 * scale", 2020. The linear map is a convolution whose stride is its kernel. Names, shapes and
 * rules of the start are torchvision's: the map normal with the variance 1 / inputs; positions
 * normal with deviation 0.02; queries, keys, values and the MLP Xavier-uniform, the MLP's
 * biases normal with deviation 1e-6; the attention's output uniform within 1 / sqrt(width); the
 * class token, the head and all other biases 0. */
#include "train/models/activation.h"

#include "base/status.h"
#include "engine/layers.h"

#include <math.h>
#include <stdio.h>

extern const rpi_model rpi_model_vit;
extern const rpi_model rpi_model_vit_b16;

enum { LONGEST_NAME = 96 };
#define POSITION_SPREAD 0.02
#define BIAS_SPREAD     1e-6

typedef struct vit_options {
    int64_t layers, hidden, heads, intermediate, patch, image;
    double dropout, attention_dropout, norm_epsilon;
    const char *activation;
} vit_options;

#define NUMBER(name, fallback, least, most, help)                                              \
    RPI_MODEL_OPTION(#name, RPI_OPTION_COUNT, offsetof(vit_options, name), fallback, least,    \
                     most, "N", help, NULL)
#define PROBABILITY(name, field, help)                                                         \
    RPI_MODEL_OPTION(name, RPI_OPTION_REAL, offsetof(vit_options, field), "0", 0, 0.99, "P",   \
                     help, NULL)
#define OPTIONS(layers_default, hidden_default, heads_default, patch_default)                  \
    {                                                                                          \
        NUMBER(layers, layers_default, 1, 1000, "blocks"),                                     \
            NUMBER(hidden, hidden_default, 1, 65536, "width of a token"),                      \
            NUMBER(heads, heads_default, 1, 1024, "of attention, which share the width"),      \
            NUMBER(intermediate, "0", 0, 1048576,                                              \
                   "width inside of a block; 0: four times hidden"),                           \
            NUMBER(patch, patch_default, 1, 1024, "side of a patch, in pixels"),               \
            NUMBER(image, "0", 0, 65536, "side of the pictures; 0: that of the data"),         \
            PROBABILITY("dropout", dropout, "of the embeddings and inside of blocks"),         \
            PROBABILITY("attention-dropout", attention_dropout,                                \
                        "of the weights of attention"),                                        \
            RPI_MODEL_OPTION("norm-epsilon", RPI_OPTION_REAL,                                  \
                             offsetof(vit_options, norm_epsilon), "1e-6", 0, 1, "X",           \
                             "beside the variance of the norms", NULL),                        \
            RPI_ACTIVATION_OPTION(vit_options, activation, "gelu"), {                          \
            0                                                                                  \
        }                                                                                      \
    }
static const rpi_option options[] = OPTIONS("6", "192", "3", "4");
static const rpi_option b16_options[] = OPTIONS("12", "768", "12", "16");

static const rpi_model_size sizes[] = {
    {"ti16", "layers=12,hidden=192,heads=3,patch=16"},
    {"s16", "layers=12,hidden=384,heads=6,patch=16"},
    {"b16", "layers=12,hidden=768,heads=12,patch=16"},
    {"b32", "layers=12,hidden=768,heads=12,patch=32"},
    {"l16", "layers=24,hidden=1024,heads=16,patch=16"},
    {0},
};

static rpi_start xavier_uniform(int64_t in, int64_t out) {
    return (rpi_start){RPI_INIT_UNIFORM, sqrt(6.0 / (double)(in + out))};
}

static const rpi_start zeros = {RPI_INIT_ZEROS, 0};

static rpi_value_id declare(rpi_builder *b, const char *name, const char *part, rpi_shape shape,
                            rpi_decay_group decay, rpi_start first) {
    char text[LONGEST_NAME];
    snprintf(text, sizeof text, "%s%s", name, part);
    return rpi_declare(b, (rpi_parameter){.name = text,
                                          .shape = shape,
                                          .decay_group = decay,
                                          .init = first.rule,
                                          .spread = first.spread,
                                          .adds = rpi_block_cuts_tokens(b)});
}

/* Attention's first matrix is called in_proj_weight, others NAME.weight: `dot` is what lies
 * between. */
static rpi_value_id linear(rpi_builder *b, const char *name, const char *dot, rpi_value_id x,
                           rpi_linear_layer layer) {
    layer.has_bias = true;
    layer.separator = dot;
    return rpi_block_linear_layer(b, name, x, &layer);
}

static const char *part_of(char text[LONGEST_NAME], int layer, const char *part) {
    snprintf(text, LONGEST_NAME, "encoder.layers.encoder_layer_%d.%s", layer, part);
    return text;
}

static rpi_value_id attend(rpi_builder *b, const vit_options *o, int layer, rpi_value_id x) {
    char name[LONGEST_NAME];
    int64_t width = o->hidden, each = width / o->heads;
    x = rpi_block_layer_norm(b, part_of(name, layer, "ln_1"), x, (int)width,
                             (float)o->norm_epsilon);
    x = rpi_block_split(b, part_of(name, layer, "self_attention.in_proj"), x);
    x = linear(b, part_of(name, layer, "self_attention.in_proj"), "_", x,
               (rpi_linear_layer){.in = width,
                                  .out = 3 * width,
                                  .weight = xavier_uniform(width, 3 * width),
                                  .shard = rpi_shard_qkv(0, o->heads, o->heads, each, false)});
    rpi_attention_attributes heads = {.heads = (int)o->heads,
                                      .kv_heads = (int)o->heads,
                                      .dropout = (float)o->attention_dropout};
    x = rpi_self_attention(b->graph, part_of(name, layer, "self_attention"), x, RPI_NO_VALUE,
                           rpi_block_own_heads(b, heads));
    x = linear(b, part_of(name, layer, "self_attention.out_proj"), ".", x,
               (rpi_linear_layer){.in = width,
                                  .out = width,
                                  .weight = {RPI_INIT_UNIFORM, 1 / sqrt((double)width)},
                                  .shard = rpi_shard_heads(1, o->heads, each)});
    return rpi_block_dropout(b, part_of(name, layer, "dropout"), x, o->dropout);
}

static rpi_value_id feed_forward(rpi_builder *b, const vit_options *o, int layer,
                                 rpi_value_id x) {
    char name[LONGEST_NAME];
    int64_t width = o->hidden, inner = o->intermediate;
    rpi_start bias = {RPI_INIT_NORMAL, BIAS_SPREAD};
    x = rpi_block_layer_norm(b, part_of(name, layer, "ln_2"), x, (int)width,
                             (float)o->norm_epsilon);
    x = rpi_block_split(b, part_of(name, layer, "mlp.0"), x);
    x = linear(b, part_of(name, layer, "mlp.0"), ".", x,
               (rpi_linear_layer){.in = width,
                                  .out = inner,
                                  .weight = xavier_uniform(width, inner),
                                  .bias = bias,
                                  .shard = rpi_shard_cut(0, inner)});
    x = rpi_block_activation(b, part_of(name, layer, "mlp.1"), x, o->activation);
    x = rpi_block_inner_dropout(b, part_of(name, layer, "mlp.2"), x, o->dropout, inner);
    x = linear(b, part_of(name, layer, "mlp.3"), ".", x,
               (rpi_linear_layer){.in = inner,
                                  .out = width,
                                  .weight = xavier_uniform(inner, width),
                                  .bias = bias,
                                  .shard = rpi_shard_cut(1, inner)});
    return rpi_block_dropout(b, part_of(name, layer, "mlp.4"), x, o->dropout);
}

/* The picture as a sequence: the class token, then its patches row by row, each with what says
 * where it lies. The two tables have torchvision's leading axes of 1. */
static rpi_value_id embed(rpi_builder *b, const vit_options *o, const rpi_data_shape *shape,
                          rpi_value_id pictures) {
    int64_t patch = o->patch, width = o->hidden, inputs = shape->channels * patch * patch;
    int64_t tokens = 1 + (shape->height / patch) * (shape->width / patch);
    rpi_value_id class_token =
        declare(b, "class_token", "", (rpi_shape){3, {1, 1, width}}, RPI_DECAY_VECTOR, zeros);
    rpi_value_id filters = declare(
        b, "conv_proj", ".weight", (rpi_shape){4, {width, shape->channels, patch, patch}},
        RPI_DECAY_WEIGHT, (rpi_start){RPI_INIT_NORMAL, sqrt(1 / (double)inputs)});
    rpi_value_id bias =
        declare(b, "conv_proj", ".bias", (rpi_shape){1, {width}}, RPI_DECAY_VECTOR, zeros);
    rpi_value_id positions =
        declare(b, "encoder.pos_embedding", "", (rpi_shape){3, {1, tokens, width}},
                RPI_DECAY_VECTOR, (rpi_start){RPI_INIT_NORMAL, POSITION_SPREAD});
    rpi_value_id x = rpi_conv2d(b->graph, "conv_proj", pictures, filters, bias,
                                (rpi_conv2d_attributes){.stride = (int)patch});
    x = rpi_image_tokens(b->graph, "tokens", x, class_token);
    x = rpi_block_own_tokens(b, "tokens", x);
    x = rpi_block_positions(b, "positions", x, positions);
    return rpi_block_dropout(b, "encoder.dropout", x, o->dropout);
}

static void fill_in(void *chosen) {
    vit_options *o = chosen;
    if (!o->intermediate) o->intermediate = 4 * o->hidden;
}

static rp_status check(const vit_options *o, const rpi_data_shape *shape) {
    if (o->hidden % o->heads)
        return RP_FAIL(INVALID, "hidden=%lld is no multiple of heads=%lld",
                       (long long)o->hidden, (long long)o->heads);
    if (o->image && (o->image != shape->height || o->image != shape->width))
        return RP_FAIL(INVALID,
                       "image=%lld, and the data's pictures are %dx%d: leave image= out, or "
                       "make them of that size (of images: --image-size %lld)",
                       (long long)o->image, shape->height, shape->width, (long long)o->image);
    if (shape->height % o->patch || shape->width % o->patch)
        return RP_FAIL(INVALID,
                       "pictures of %dx%d cannot be cut into patches of %lldx%lld: their sides "
                       "must be multiples of patch=",
                       shape->height, shape->width, (long long)o->patch, (long long)o->patch);
    return RP_OK;
}

static rpi_value_id build(rpi_builder *b, const void *chosen, const rpi_data_shape *shape,
                          rpi_value_id pictures) {
    const vit_options *o = chosen;
    char name[LONGEST_NAME];
    rp_status status = check(o, shape);
    if (status != RP_OK) rpi_graph_fail(b->graph, status, "%s", rp_last_error()->message);
    rpi_value_id x = embed(b, o, shape, pictures);
    for (int layer = 0; layer < o->layers; layer++) {
        rpi_value_id y = attend(b, o, layer, x);
        x = rpi_add(b->graph, part_of(name, layer, "self_attention.add"), x, y);
        y = feed_forward(b, o, layer, x);
        x = rpi_add(b->graph, part_of(name, layer, "mlp.add"), x, y);
    }
    x = rpi_block_layer_norm(b, "encoder.ln", x, (int)o->hidden, (float)o->norm_epsilon);
    x = rpi_block_first_token(b, "class_output", x);
    return linear(b, "heads.head", ".", x,
                  (rpi_linear_layer){.in = o->hidden, .out = shape->classes});
}

static rp_status check_split(const void *chosen, const rpi_tensor_split *split) {
    const vit_options *o = chosen;
    RP_TRY(rpi_tensor_split_check(split, "heads", o->heads));
    return rpi_tensor_split_check_units(split, "intermediate", o->intermediate);
}

const rpi_model rpi_model_vit = {
    .name = "vit",
    .summary = "a vision transformer, as it stands one for pictures of about 32x32",
    .task = "classification",
    .options = options,
    .sizes = sizes,
    .fill_in = fill_in,
    .check_split = check_split,
    .build = build,
};

const rpi_model rpi_model_vit_b16 = {
    .name = "vit-b16",
    .summary = "ViT-B/16, for pictures of 224x224 (87M parameters for ImageNet)",
    .task = "classification",
    .options = b16_options,
    .fill_in = fill_in,
    .check_split = check_split,
    .build = build,
};
