#include "engine/op.h"

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
