#include "engine/onednn/onednn_sgemm.h"

#include "base/status.h"
#include "engine/backends/cpu/kernels/kernel_activation.h"
#include "engine/onednn/onednn_api.h"
#include "engine/onednn/onednn_team.h"

size_t rpi_dnn_sgemm_workspace(const rpi_kernel_run *run) {
    return rpi_kernel_sgemm_is_fast(run) ? rpi_kernel_sgemm_workspace(run) : 0;
}

/* GFLOP/s of ours and of oneDNN 2.6 on one Sapphire Rapids core, in turns, of which a quarter
 * of the calls were better; m x n x k.
 *
 * b transposed, forward: 256 x 768 x 768: 119, 106; 256 x 3072 x 768: 116, 101;
 * 1024 x 3072 x 768: 118, 119.
 *
 * a transposed, gradients of weights: 768 x 768 x 256: 122, 120; 3072 x 768 x 256: 119, 107;
 * 3072 x 768 x 1024: 116, 109.
 *
 * Neither, gradients of inputs: 256 x 3072 x 768: 110, 100; 1024 x 3072 x 768: 118, 111; but
 * 256 x 768 x 768: 122, 128; 256 x 768 x 3072: 113, 116.
 *
 * Packing is not worth it for few rows: 4 x 768 x 768: 13, 23; 768 x 768 x 4: 8, 11. */
static bool is_own(const rpi_kernel_run *run, const rpi_kernel_sgemm *it) {
    enum { FEW = 8 };
    if (!rpi_kernel_sgemm_is_fast(run) || it->m < FEW || it->n < FEW || it->k < FEW)
        return false;
    return it->a_transposed || it->b_transposed || it->n > it->k;
}

static rp_status run_onednn(const rpi_kernel_run *run, const rpi_kernel_sgemm *it) {
    RP_TRY(rpi_dnn_check(dnnl_sgemm(it->a_transposed ? 'T' : 'N', it->b_transposed ? 'T' : 'N',
                                    it->m, it->n, it->k, 1.0f, it->a.data, it->a.stride,
                                    it->b.data, it->b.stride, it->accumulate ? 1.0f : 0.0f,
                                    it->c.data, it->c.stride),
                         "matrix product"));
    if (it->bias)
        rpi_kernel_add_bias(
            run, &(rpi_kernel_add){
                     .rows = it->m, .cols = it->n, .a = it->c, .bias = it->bias, .y = it->c});
    return RP_OK;
}

rp_status rpi_dnn_sgemm(const rpi_kernel_run *run, const rpi_kernel_sgemm *it) {
    rpi_dnn_team_enter(run->threads);
    if (!is_own(run, it)) return run_onednn(run, it);
    rpi_kernel_sgemm_run(run, it);
    return RP_OK;
}
