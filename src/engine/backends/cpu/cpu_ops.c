#include "engine/backends/cpu/cpu_op.h"

extern const rpi_cpu_op rpi_cpu_adaptive_cross_entropy, rpi_cpu_attention,
    rpi_cpu_cached_attention, rpi_cpu_cached_self_attention, rpi_cpu_concat_tokens,
    rpi_cpu_dropout, rpi_cpu_embedding, rpi_cpu_gelu, rpi_cpu_glu, rpi_cpu_group_norm,
    rpi_cpu_image_tokens, rpi_cpu_layer_norm, rpi_cpu_logit_statistics,
    rpi_cpu_position_embedding, rpi_cpu_relative_attention, rpi_cpu_rms_norm, rpi_cpu_rope,
    rpi_cpu_scale, rpi_cpu_select_token, rpi_cpu_self_attention, rpi_cpu_silu,
    rpi_cpu_sinusoids, rpi_cpu_softmax_cross_entropy, rpi_cpu_statistics_cross_entropy,
    rpi_cpu_tanh;

static const rpi_cpu_op *const catalogue[] = {
    &rpi_cpu_embedding,
    &rpi_cpu_position_embedding,
    &rpi_cpu_layer_norm,
    &rpi_cpu_rms_norm,
    &rpi_cpu_gelu,
    &rpi_cpu_silu,
    &rpi_cpu_tanh,
    &rpi_cpu_glu,
    &rpi_cpu_rope,
    &rpi_cpu_scale,
    &rpi_cpu_attention,
    &rpi_cpu_self_attention,
    &rpi_cpu_cached_attention,
    &rpi_cpu_cached_self_attention,
    &rpi_cpu_dropout,
    &rpi_cpu_image_tokens,
    &rpi_cpu_select_token,
    &rpi_cpu_softmax_cross_entropy,
    &rpi_cpu_logit_statistics,
    &rpi_cpu_statistics_cross_entropy,
    &rpi_cpu_adaptive_cross_entropy,
    &rpi_cpu_concat_tokens,
    &rpi_cpu_sinusoids,
    &rpi_cpu_relative_attention,
    &rpi_cpu_group_norm,
};

const rpi_cpu_op *rpi_cpu_op_of(const rpi_op *op) {
    for (size_t i = 0; i < sizeof catalogue / sizeof catalogue[0]; i++)
        if (catalogue[i]->op == op) return catalogue[i];
    return NULL;
}
