/* Matrix products over row-major matrices: in f32 nothing is copied, and gradients are added
 * where they lie. */
#include "engine/onednn/onednn_linear.h"

#include "base/status.h"
#include "engine/backends/cpu/kernels/kernel_activation.h"
#include "engine/onednn/onednn_sgemm.h"

enum {
    INPUT = RPI_DNN_LINEAR_INPUT,
    WEIGHT = RPI_DNN_LINEAR_WEIGHT,
    BIAS = RPI_DNN_LINEAR_BIAS
};

static rpi_dnn_linear linear_of(const rpi_dnn_session *session, const rpi_unit *unit) {
    const int64_t *weight = unit->inputs[WEIGHT].shape.size;
    return (rpi_dnn_linear){.run = rpi_dnn_kernel_run(session),
                            .rows = rpi_shape_count(&unit->inputs[INPUT].shape) / weight[1],
                            .inputs = weight[1],
                            .outputs = weight[0],
                            .has_bias = unit->nodes[0]->input_count > BIAS,
                            .wants_input = unit->wanted >> INPUT & 1u,
                            .wants_weight = unit->wanted >> WEIGHT & 1u};
}

rp_status rpi_dnn_linear_open(rpi_dnn_session *session, const rpi_unit *unit,
                              int64_t rows_at_once, rpi_kernel *out,
                              rpi_dnn_linear *out_linear) {
    rpi_dnn_linear linear = linear_of(session, unit);
    out->needs_inputs = 1u << WEIGHT;
    if (unit->inputs[INPUT].is_remade) out->needs_inputs |= 1u << INPUT;
    if (unit->compute == RP_BF16) {
        RP_TRY(
            rpi_dnn_linear_bf16_open(session, unit, &linear, rows_at_once, out, &linear.bf16));
    } else {
        const size_t bytes = rpi_dnn_sgemm_workspace(&linear.run);
        out->needs_inputs |= 1u << INPUT;
        linear.forward_scratch = rpi_dnn_reserve(&out->forward_workspace, bytes);
        linear.backward_scratch = rpi_dnn_reserve(&out->backward_workspace, bytes);
    }
    *out_linear = linear;
    return RP_OK;
}

void rpi_dnn_linear_close(rpi_dnn_linear *it) {
    rpi_dnn_linear_bf16_close(it->bf16);
}

rp_status rpi_dnn_linear_begin(const rpi_dnn_linear *it, const rpi_kernel_io *io) {
    return it->bf16 ? rpi_dnn_linear_bf16_begin(it->bf16, io) : RP_OK;
}

const float *rpi_dnn_linear_bias(const rpi_dnn_linear *it, const rpi_kernel_io *io) {
    return it->has_bias ? io->inputs[BIAS] : NULL;
}

rp_status rpi_dnn_linear_multiply(const rpi_dnn_linear *it, const rpi_kernel_io *io,
                                  int64_t first, int64_t count, const float *bias, float *z) {
    const float *x = (const float *)io->inputs[INPUT] + first * it->inputs;
    if (!it->bf16)
        return rpi_dnn_sgemm(
            &it->run,
            &(rpi_kernel_sgemm){.m = count,
                                .n = it->outputs,
                                .k = it->inputs,
                                .a = rpi_kernel_f32(x, it->inputs),
                                .b = rpi_kernel_f32(io->inputs[WEIGHT], it->inputs),
                                .b_transposed = true,
                                .c = rpi_kernel_f32(z, it->outputs),
                                .bias = bias,
                                .workspace = rpi_dnn_at(io->workspace, it->forward_scratch)});
    return rpi_dnn_linear_bf16_multiply(it->bf16, io, first, count, bias, z);
}

static bool adds(const rpi_kernel_io *io, int input) {
    return io->accumulate >> input & 1u;
}

rp_status rpi_dnn_linear_input_gradient(const rpi_dnn_linear *it, const rpi_kernel_io *io,
                                        const float *dz) {
    if (it->bf16) return rpi_dnn_linear_bf16_input_gradient(it->bf16, io, dz);
    return rpi_dnn_sgemm(
        &it->run,
        &(rpi_kernel_sgemm){.m = it->rows,
                            .n = it->inputs,
                            .k = it->outputs,
                            .a = rpi_kernel_f32(dz, it->outputs),
                            .b = rpi_kernel_f32(io->inputs[WEIGHT], it->inputs),
                            .c = rpi_kernel_f32(io->grad_inputs[INPUT], it->inputs),
                            .accumulate = adds(io, INPUT),
                            .workspace = rpi_dnn_at(io->workspace, it->backward_scratch)});
}

static rp_status weight_gradient(const rpi_dnn_linear *it, const rpi_kernel_io *io,
                                 const float *dz) {
    if (it->bf16) return rpi_dnn_linear_bf16_weight_gradient(it->bf16, io, dz);
    return rpi_dnn_sgemm(
        &it->run,
        &(rpi_kernel_sgemm){.m = it->outputs,
                            .n = it->inputs,
                            .k = it->rows,
                            .a = rpi_kernel_f32(dz, it->outputs),
                            .a_transposed = true,
                            .b = rpi_kernel_f32(io->inputs[INPUT], it->inputs),
                            .c = rpi_kernel_f32(io->grad_inputs[WEIGHT], it->inputs),
                            .accumulate = adds(io, WEIGHT),
                            .workspace = rpi_dnn_at(io->workspace, it->backward_scratch)});
}

rp_status rpi_dnn_linear_weight_gradients(const rpi_dnn_linear *it, const rpi_kernel_io *io,
                                          const float *dz) {
    if (io->grad_inputs[WEIGHT]) RP_TRY(weight_gradient(it, io, dz));
    if (it->has_bias && io->grad_inputs[BIAS])
        rpi_kernel_column_sums(&it->run,
                               &(rpi_kernel_sums){.rows = it->rows,
                                                  .cols = it->outputs,
                                                  .x = rpi_kernel_f32(dz, it->outputs),
                                                  .sums = io->grad_inputs[BIAS],
                                                  .accumulate = adds(io, BIAS)});
    return RP_OK;
}
