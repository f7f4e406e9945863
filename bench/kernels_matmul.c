#include "kernels.h"

#include "base/status.h"
#include "engine/backends/cpu/kernels/kernel_matmul.h"

#include <stdio.h>
#include <stdlib.h>

#if defined(RPI_WITH_ONEDNN)
#    include "engine/onednn/onednn_session.h"
#endif

/* Products of bf16 as those of a linear layer: ours reads what the engine has, weights and
 * gradients of f32; oneDNN's reads what was rounded before, which takes time of its own. */
enum { ROWS = 1024, THREADS = 64 /* at most */ };

static void own(const rpi_kernel_run *run, const void *args) {
    rpi_kernel_run how = *run;
    if (how.threads > THREADS) how.threads = THREADS;
    rpi_kernel_matmul_run(&how, args);
}

static void own_without_tiles(const rpi_kernel_run *run, const void *args) {
    rpi_kernel_run how = *run;
    if (how.threads > THREADS) how.threads = THREADS;
    rpi_kernel_matmul_run_by(&how, args, RPI_MATMUL_AVX512);
}

static const char *name_of(const rpi_kernel_matmul *it, const char *whose) {
    enum { BYTES = 64 };
    char *name = malloc(BYTES);
    if (name)
        (void)snprintf(name, BYTES, "%s %lldx%lldx%lld %c%c", whose, (long long)it->m,
                       (long long)it->n, (long long)it->k, it->a_transposed ? 'T' : 'N',
                       it->b_transposed ? 'T' : 'N');
    return name ? name : whose;
}

#if defined(RPI_WITH_ONEDNN)
typedef struct by_onednn {
    rpi_dnn_session session;
    rpi_dnn_primitive product;
    void *data[3], *scratch;
} by_onednn;

static void onednn(const rpi_kernel_run *run, const void *args) {
    by_onednn *it = (by_onednn *)args;
    it->session.threads = run->threads;
    (void)rpi_dnn_primitive_run(&it->session, &it->product, (const void *const *)it->data,
                                it->scratch);
}

static rp_status make_product(const rpi_kernel_matmul *it, by_onednn *out) {
    static const int names[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
    rpi_dnn_md source, weights, target;
    dnnl_primitive_desc_t pd = NULL;
    RP_TRY(rpi_dnn_context_open(&out->session.dnn));
    RP_TRY(rpi_dnn_md_create(2, (const int64_t[]){it->m, it->k}, RP_BF16,
                             it->a_transposed ? dnnl_ba : dnnl_ab, &source));
    RP_TRY(rpi_dnn_md_create(2, (const int64_t[]){it->k, it->n}, RP_BF16,
                             it->b_transposed ? dnnl_ba : dnnl_ab, &weights));
    RP_TRY(rpi_dnn_md_create(2, (const int64_t[]){it->m, it->n}, RP_F32, dnnl_ab, &target));
    const rpi_dnn_matmul product = {source, weights, target, false};
    RP_TRY(rpi_dnn_matmul_describe(&out->session.dnn, &product, &pd));
    return rpi_dnn_primitive_create(&out->session, pd, 3, names, &out->product);
}

static uint16_t *rounded(const float *x, int64_t count) {
    uint16_t *it = (uint16_t *)(void *)bench_floats((count + 1) / 2);
    for (int64_t i = 0; i < count; i++) it[i] = rpi_f32_to_bf16(x[i]);
    return it;
}

static void add_onednn(bench_list *list, const rpi_kernel_matmul *it, double flops) {
    by_onednn made = {.session.threads = 1};
    if (!rpi_dnn_has_bf16() || make_product(it, &made) != RP_OK) return;
    made.data[0] = rounded(it->a.data, it->m * it->k);
    made.data[1] = rounded(it->b.data, it->n * it->k);
    made.data[2] = it->c.data;
    made.scratch = bench_floats((int64_t)(made.product.scratch_bytes / sizeof(float)) + 1);
    bench_add(list, (bench_kernel){name_of(it, "matmul by oneDNN"), onednn,
                                   bench_copy(&made, sizeof made), 0, flops});
}
#endif

static void add(bench_list *list, int64_t m, int64_t n, int64_t k, bool a_transposed,
                bool b_transposed) {
    static float *workspace;
    const rpi_kernel_run most = {.threads = THREADS};
    if (!workspace)
        workspace =
            bench_floats((int64_t)(rpi_kernel_matmul_workspace(&most) / sizeof *workspace));
    const rpi_kernel_matmul *it =
        BENCH_ARGS(rpi_kernel_matmul, .m = m, .n = n, .k = k,
                   .a = rpi_kernel_f32(bench_floats(m * k), a_transposed ? m : k),
                   .b = rpi_kernel_f32(bench_floats(n * k), b_transposed ? k : n),
                   .a_transposed = a_transposed, .b_transposed = b_transposed,
                   .c = rpi_kernel_f32(bench_floats(m * n), n), .workspace = workspace);
    const double flops = 2.0 * (double)m * (double)n * (double)k;
    bench_add(list, (bench_kernel){name_of(it, "matmul"), own, it, 0, flops});
    if (rpi_kernel_matmul_form() == RPI_MATMUL_AMX)
        bench_add(list, (bench_kernel){name_of(it, "matmul without AMX"), own_without_tiles, it,
                                       0, flops});
#if defined(RPI_WITH_ONEDNN)
    add_onednn(list, it, flops);
#endif
}

void bench_matmul(bench_list *list) {
    static const int64_t layers[][2] = {{768, 768}, {3072, 768}, {768, 3072}};
    if (rpi_kernel_matmul_form() == RPI_MATMUL_SCALAR) return;
    for (int i = 0; i < 3; i++) {
        const int64_t outputs = layers[i][0], inputs = layers[i][1];
        add(list, ROWS, outputs, inputs, false, true);
        add(list, ROWS, inputs, outputs, false, false);
        add(list, outputs, inputs, ROWS, true, false);
    }
    for (int64_t rows = 4; rows <= ROWS / 4; rows *= 4) add(list, rows, 768, 768, false, true);
}
