#include "engine/op.h"

#include "base/status.h"

#include <stdio.h>
#include <string.h>

extern const rpi_op rpi_op_adaptive_cross_entropy, rpi_op_add, rpi_op_attention,
    rpi_op_batch_norm2d, rpi_op_cached_attention, rpi_op_cached_self_attention, rpi_op_conv2d,
    rpi_op_dropout, rpi_op_embedding, rpi_op_external, rpi_op_flatten, rpi_op_gelu,
    rpi_op_global_avg_pool, rpi_op_glu, rpi_op_group_norm, rpi_op_image_tokens,
    rpi_op_join_tokens, rpi_op_layer_norm, rpi_op_linear, rpi_op_max_pool2d,
    rpi_op_position_embedding, rpi_op_relative_attention, rpi_op_relu, rpi_op_reshape,
    rpi_op_rms_norm, rpi_op_rope, rpi_op_scale, rpi_op_select_token, rpi_op_self_attention,
    rpi_op_silu, rpi_op_sinusoids, rpi_op_softmax_cross_entropy, rpi_op_tanh;

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
    &rpi_op_join_tokens,
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

bool rpi_op_has_cache(const rpi_op *op) {
    for (int i = 0; i < op->input_count; i++)
        if (op->inputs[i].role == RPI_CACHE) return true;
    return false;
}

const char *rpi_op_shape_text(const rpi_shape *shape, char *text, size_t bytes) {
    size_t used = 0;
    snprintf(text, bytes, "a scalar");
    for (int i = 0; i < shape->dims && used < bytes; i++) {
        char size[64];
        rpi_dimension_text(shape->size[i], NULL, size, sizeof size);
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", i ? " x " : "", size);
    }
    return text;
}

rp_status rpi_op_check_probability(float probability, const char *what) {
    if (probability >= 0 && probability <= 1) return RP_OK;
    return RP_FAIL(INVALID, "%s is %g; 0 to 1 are allowed", what, (double)probability);
}

rp_status rpi_op_check_numbers(const rpi_shape *shape, int first, const char *what) {
    char text[96];
    for (int i = first; i < shape->dims; i++)
        if (rpi_dimension_is_named(shape->size[i]))
            return RP_FAIL(INVALID, "%s is %s; numbers are wanted from axis %d on", what,
                           rpi_op_shape_text(shape, text, sizeof text), first);
    return RP_OK;
}

rpi_shape rpi_op_drop_ones(const rpi_shape *shape, int dims) {
    rpi_shape rest = {0};
    int first = 0;
    while (shape->dims - first > dims && shape->size[first] == 1) first++;
    for (int i = first; i < shape->dims; i++) rest.size[rest.dims++] = shape->size[i];
    return rest;
}

rp_status rpi_op_check_shape(const rpi_shape *shape, const rpi_shape *wanted,
                             const char *what) {
    char a[96], b[96];
    if (rpi_shape_equal(shape, wanted)) return RP_OK;
    return RP_FAIL(INVALID, "%s is %s; %s is wanted", what,
                   rpi_op_shape_text(shape, a, sizeof a),
                   rpi_op_shape_text(wanted, b, sizeof b));
}

rp_status rpi_op_check_vector(const rpi_shape *shape, int64_t count, const char *what) {
    char text[96];
    if (shape->dims == 1 && shape->size[0] == count) return RP_OK;
    return RP_FAIL(INVALID, "%s is %s; %lld is wanted", what,
                   rpi_op_shape_text(shape, text, sizeof text), (long long)count);
}
