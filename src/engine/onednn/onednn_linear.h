/* The three matrix products of a linear layer, for kernels that begin with one. In bf16 its
 * input is rounded once a run, and saved so where backward wants it; its weight once a version
 * (onednn_linear_bf16.c). */
#ifndef RPI_ENGINE_ONEDNN_LINEAR_H
#define RPI_ENGINE_ONEDNN_LINEAR_H

#include "engine/onednn/onednn_session.h"

enum { RPI_DNN_LINEAR_INPUT, RPI_DNN_LINEAR_WEIGHT, RPI_DNN_LINEAR_BIAS };

typedef struct rpi_dnn_linear_bf16 rpi_dnn_linear_bf16;

typedef struct rpi_dnn_linear {
    rpi_kernel_run run;
    int64_t rows, inputs, outputs; /* x: rows x inputs, weight: outputs x inputs */
    bool has_bias, wants_input, wants_weight;
    size_t forward_scratch, backward_scratch; /* of f32, in the workspaces */
    rpi_dnn_linear_bf16 *bf16;                /* NULL: products are of f32 */
} rpi_dnn_linear;

/* The unit's first node is a linear. Its products will be of unit->compute, with this many rows
 * at a time in forward; `out` gets the inputs that
 * backward reads, and what they save and need of workspaces besides what is there.
 * RP_UNSUPPORTED without a message: oneDNN has no such product. */
rp_status rpi_dnn_linear_open(rpi_dnn_session *session, const rpi_unit *unit,
                              int64_t rows_at_once, rpi_kernel *out,
                              rpi_dnn_linear *out_linear);
void rpi_dnn_linear_close(rpi_dnn_linear *it);
/* NULL: it has none. */
const float *rpi_dnn_linear_bias(const rpi_dnn_linear *it, const rpi_kernel_io *io);

/* Before any of the products of a forward pass. */
rp_status rpi_dnn_linear_begin(const rpi_dnn_linear *it, const rpi_kernel_io *io);
/* z = x w^T, and + bias where that is not NULL, of rows [first, first + count), the first at z.
 */
rp_status rpi_dnn_linear_multiply(const rpi_dnn_linear *it, const rpi_kernel_io *io,
                                  int64_t first, int64_t count, const float *bias, float *z);
/* dx = dz w */
rp_status rpi_dnn_linear_input_gradient(const rpi_dnn_linear *it, const rpi_kernel_io *io,
                                        const float *dz);
/* dw = dz^T x, dbias = sum of dz's rows */
rp_status rpi_dnn_linear_weight_gradients(const rpi_dnn_linear *it, const rpi_kernel_io *io,
                                          const float *dz);

/* onednn_linear_bf16.c: the same in bf16. */
/* Are products of bf16 left to our own kernel, and those of pixels? */
bool rpi_dnn_multiplies_itself(const rpi_dnn_session *session);
bool rpi_dnn_convolves_itself(const rpi_dnn_session *session);
rp_status rpi_dnn_linear_bf16_open(rpi_dnn_session *session, const rpi_unit *unit,
                                   const rpi_dnn_linear *linear, int64_t rows_at_once,
                                   rpi_kernel *out, rpi_dnn_linear_bf16 **out_bf16);
void rpi_dnn_linear_bf16_close(rpi_dnn_linear_bf16 *it); /* NULL is fine */
rp_status rpi_dnn_linear_bf16_begin(const rpi_dnn_linear_bf16 *it, const rpi_kernel_io *io);
rp_status rpi_dnn_linear_bf16_multiply(const rpi_dnn_linear_bf16 *it, const rpi_kernel_io *io,
                                       int64_t first, int64_t count, const float *bias,
                                       float *z);
rp_status rpi_dnn_linear_bf16_input_gradient(const rpi_dnn_linear_bf16 *it,
                                             const rpi_kernel_io *io, const float *dz);
rp_status rpi_dnn_linear_bf16_weight_gradient(const rpi_dnn_linear_bf16 *it,
                                              const rpi_kernel_io *io, const float *dz);

/* onednn_linear_loss.c: a linear layer and the cross-entropy of what it makes. */
bool rpi_dnn_linear_fuses_loss(const rpi_node *next);
rp_status rpi_dnn_linear_loss_plan(rpi_dnn_session *session, const rpi_unit *unit,
                                   rpi_kernel *out);

#endif
