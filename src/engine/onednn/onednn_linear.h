/* The three matrix products of a linear layer, for kernels that begin with one. */
#ifndef RPI_ENGINE_ONEDNN_LINEAR_H
#define RPI_ENGINE_ONEDNN_LINEAR_H

#include "engine/onednn/onednn_session.h"

enum { RPI_DNN_LINEAR_INPUT, RPI_DNN_LINEAR_WEIGHT, RPI_DNN_LINEAR_BIAS };

typedef struct rpi_dnn_linear {
    rpi_kernel_run run;
    int64_t rows, inputs, outputs; /* x: rows x inputs, weight: outputs x inputs */
    bool has_bias, wants_input;
} rpi_dnn_linear;

/* The unit's first node is a linear. */
rpi_dnn_linear rpi_dnn_linear_of(const rpi_dnn_session *session, const rpi_unit *unit);
/* NULL: it has none. */
const float *rpi_dnn_linear_bias(const rpi_dnn_linear *it, const rpi_kernel_io *io);

/* z = x w^T of rows [first, first + count), the first at z. */
rp_status rpi_dnn_linear_multiply(const rpi_dnn_linear *it, const rpi_kernel_io *io,
                                  int64_t first, int64_t count, float *z);
/* z += bias */
void rpi_dnn_linear_add_bias(const rpi_dnn_linear *it, const rpi_kernel_io *io, int64_t count,
                             float *z);
/* dx = dz w */
rp_status rpi_dnn_linear_input_gradient(const rpi_dnn_linear *it, const rpi_kernel_io *io,
                                        const float *dz);
/* dw = dz^T x, dbias = sum of dz's rows */
rp_status rpi_dnn_linear_weight_gradients(const rpi_dnn_linear *it, const rpi_kernel_io *io,
                                          const float *dz);

/* onednn_linear_loss.c: a linear layer and the cross-entropy of what it makes. */
bool rpi_dnn_linear_fuses_loss(const rpi_node *next);
rp_status rpi_dnn_linear_loss_plan(rpi_dnn_session *session, const rpi_unit *unit,
                                   rpi_kernel *out);

#endif
