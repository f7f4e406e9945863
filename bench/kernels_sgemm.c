#include "kernels.h"

#include "engine/backends/cpu/kernels/kernel_sgemm.h"

#include <stdio.h>
#include <stdlib.h>

#if defined(RPI_WITH_ONEDNN)
#    include <oneapi/dnnl/dnnl.h>
#endif

/* The products of linear layers: forward, gradient of the input, of the weight. */
enum { THREADS = 64 /* at most */ };

static void own(const rpi_kernel_run *run, const void *args) {
    rpi_kernel_run how = *run;
    if (how.threads > THREADS) how.threads = THREADS;
    rpi_kernel_sgemm_run(&how, args);
}

#if defined(RPI_WITH_ONEDNN)
static void onednn(const rpi_kernel_run *run, const void *args) {
    const rpi_kernel_sgemm *it = args;
    (void)run;
    (void)dnnl_sgemm(it->a_transposed ? 'T' : 'N', it->b_transposed ? 'T' : 'N', it->m, it->n,
                     it->k, 1, it->a.data, it->a.stride, it->b.data, it->b.stride, 0,
                     it->c.data, it->c.stride);
}
#endif

static const char *name_of(const rpi_kernel_sgemm *it, const char *whose) {
    enum { BYTES = 64 };
    char *name = malloc(BYTES);
    if (name)
        (void)snprintf(name, BYTES, "%s %lldx%lldx%lld %c%c", whose, (long long)it->m,
                       (long long)it->n, (long long)it->k, it->a_transposed ? 'T' : 'N',
                       it->b_transposed ? 'T' : 'N');
    return name ? name : whose;
}

static void add(bench_list *list, int64_t m, int64_t n, int64_t k, bool a_transposed,
                bool b_transposed) {
    static float *workspace;
    const rpi_kernel_run most = {.threads = THREADS};
    if (!workspace)
        workspace =
            bench_floats((int64_t)(rpi_kernel_sgemm_workspace(&most) / sizeof *workspace));
    const rpi_kernel_sgemm *it =
        BENCH_ARGS(rpi_kernel_sgemm, .m = m, .n = n, .k = k,
                   .a = rpi_kernel_f32(bench_floats(m * k), a_transposed ? m : k),
                   .b = rpi_kernel_f32(bench_floats(n * k), b_transposed ? k : n),
                   .a_transposed = a_transposed, .b_transposed = b_transposed,
                   .c = rpi_kernel_f32(bench_floats(m * n), n), .workspace = workspace);
    const double flops = 2.0 * (double)m * (double)n * (double)k;
    bench_add(list, (bench_kernel){name_of(it, "sgemm"), own, it, 0, flops});
#if defined(RPI_WITH_ONEDNN)
    bench_add(list, (bench_kernel){name_of(it, "sgemm by oneDNN"), onednn, it, 0, flops});
#endif
}

/* 256 rows, and the 1576 of 8 pictures of 14 x 14 patches and a class token. */
void bench_sgemm(bench_list *list) {
    static const int64_t layers[][2] = {{768, 768}, {3072, 768}, {768, 3072}};
    static const int64_t rows[] = {256, 8 * 197};
    for (int i = 0; i < 6; i++) {
        const int64_t outputs = layers[i % 3][0], inputs = layers[i % 3][1];
        add(list, rows[i / 3], outputs, inputs, false, true);
        add(list, rows[i / 3], inputs, outputs, false, false);
        add(list, outputs, inputs, rows[i / 3], true, false);
    }
}
