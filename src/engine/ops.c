#include "engine/op.h"

#include <string.h>

extern const rpi_op rpi_op_adaptive_cross_entropy, rpi_op_add, rpi_op_attention,
    rpi_op_batch_norm2d, rpi_op_cached_attention, rpi_op_cached_self_attention,
    rpi_op_concat_tokens, rpi_op_conv2d, rpi_op_dropout, rpi_op_embedding, rpi_op_external,
    rpi_op_flatten, rpi_op_gelu, rpi_op_global_avg_pool, rpi_op_glu, rpi_op_group_norm,
    rpi_op_image_tokens, rpi_op_layer_norm, rpi_op_linear, rpi_op_logit_statistics,
    rpi_op_max_pool2d, rpi_op_position_embedding, rpi_op_relative_attention, rpi_op_relu,
    rpi_op_reshape, rpi_op_rms_norm, rpi_op_rope, rpi_op_scale, rpi_op_select_token,
    rpi_op_self_attention, rpi_op_silu, rpi_op_sinusoids, rpi_op_softmax_cross_entropy,
    rpi_op_statistics_cross_entropy, rpi_op_tanh;

static const rpi_op *const catalogue[] = {
    &rpi_op_conv2d,
    &rpi_op_batch_norm2d,
    &rpi_op_relu,
    &rpi_op_add,
    &rpi_op_max_pool2d,
    &rpi_op_global_avg_pool,
    &rpi_op_flatten,
    &rpi_op_linear,
    &rpi_op_softmax_cross_entropy,
    &rpi_op_logit_statistics,
    &rpi_op_statistics_cross_entropy,
    &rpi_op_adaptive_cross_entropy,
    &rpi_op_reshape,
    &rpi_op_embedding,
    &rpi_op_position_embedding,
    &rpi_op_layer_norm,
    &rpi_op_rms_norm,
    &rpi_op_gelu,
    &rpi_op_silu,
    &rpi_op_tanh,
    &rpi_op_glu,
    &rpi_op_rope,
    &rpi_op_scale,
    &rpi_op_dropout,
    &rpi_op_image_tokens,
    &rpi_op_select_token,
    &rpi_op_attention,
    &rpi_op_self_attention,
    &rpi_op_external,
    &rpi_op_cached_attention,
    &rpi_op_cached_self_attention,
    &rpi_op_concat_tokens,
    &rpi_op_sinusoids,
    &rpi_op_relative_attention,
    &rpi_op_group_norm,
};

const rpi_op *rpi_op_at(int index) {
    int count = (int)(sizeof catalogue / sizeof catalogue[0]);
    return index >= 0 && index < count ? catalogue[index] : NULL;
}

const rpi_op *rpi_op_find(const char *name) {
    for (int i = 0; rpi_op_at(i); i++)
        if (!strcmp(rpi_op_at(i)->name, name)) return rpi_op_at(i);
    return NULL;
}
