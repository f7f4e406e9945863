#include "engine/op.h"

#include <stdio.h>
#include <string.h>

extern const rpi_op rpi_op_add, rpi_op_batch_norm2d, rpi_op_conv2d, rpi_op_external,
    rpi_op_flatten, rpi_op_global_avg_pool, rpi_op_linear, rpi_op_max_pool2d, rpi_op_relu,
    rpi_op_softmax_cross_entropy;

static const rpi_op *const catalogue[] = {
    &rpi_op_conv2d,   &rpi_op_batch_norm2d, &rpi_op_relu,
    &rpi_op_add,      &rpi_op_max_pool2d,   &rpi_op_global_avg_pool,
    &rpi_op_flatten,  &rpi_op_linear,       &rpi_op_softmax_cross_entropy,
    &rpi_op_external,
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

const char *rpi_op_shape_text(const rpi_shape *shape, char *text, size_t bytes) {
    size_t used = 0;
    snprintf(text, bytes, "a scalar");
    for (int i = 0; i < shape->dims && used < bytes; i++) {
        char size[24] = "N";
        if (shape->size[i] != RPI_BATCH)
            snprintf(size, sizeof size, "%lld", (long long)shape->size[i]);
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", i ? " x " : "", size);
    }
    return text;
}
