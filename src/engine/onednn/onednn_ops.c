#include "engine/onednn/onednn_op.h"

extern const rpi_dnn_op rpi_dnn_op_add, rpi_dnn_op_batch_norm2d, rpi_dnn_op_conv2d,
    rpi_dnn_op_global_avg_pool, rpi_dnn_op_group_norm, rpi_dnn_op_linear, rpi_dnn_op_max_pool2d,
    rpi_dnn_op_relu;

static const rpi_dnn_op *const catalogue[] = {
    &rpi_dnn_op_conv2d, &rpi_dnn_op_batch_norm2d, &rpi_dnn_op_relu,
    &rpi_dnn_op_add,    &rpi_dnn_op_max_pool2d,   &rpi_dnn_op_global_avg_pool,
    &rpi_dnn_op_linear, &rpi_dnn_op_group_norm,
};

const rpi_dnn_op *rpi_dnn_op_of(const rpi_op *op) {
    for (size_t i = 0; i < sizeof catalogue / sizeof catalogue[0]; i++)
        if (catalogue[i]->op == op) return catalogue[i];
    return NULL;
}
