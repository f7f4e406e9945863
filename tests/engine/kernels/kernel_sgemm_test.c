#include "kernel_fixture.h"

#include "base/memory.h"
#include "engine/backends/cpu/kernels/kernel_sgemm.h"

#include <math.h>
#include <stdio.h>

enum { SHAPES = 60, THREADS = 3 };

static void *workspace(void) {
    static void *bytes;
    const rpi_kernel_run run = {.threads = THREADS};
    if (!bytes) CHECK_OK(rpi_alloc(rpi_kernel_sgemm_workspace(&run), "workspace", &bytes));
    return bytes;
}

static rpi_kernel_rows matrix(rpi_rng *rng, int64_t rows, int64_t cols, uint64_t stream) {
    int64_t stride = cols + rpi_rng_below(rng, 3);
    return rpi_kernel_f32(kernel_normal(rows * stride, 1, stream), stride);
}

/* Every fourth has sizes beyond one packing. */
static rpi_kernel_sgemm draw(rpi_rng *rng, int index) {
    const bool large = index % 4 == 0;
    rpi_kernel_sgemm it = {.m = kernel_size(rng, large ? 500 : 70),
                           .n = kernel_size(rng, large && index % 8 ? 300 : 70),
                           .k = kernel_size(rng, large ? 1000 : 100),
                           .a_transposed = rpi_rng_below(rng, 2) > 0,
                           .b_transposed = rpi_rng_below(rng, 2) > 0,
                           .accumulate = rpi_rng_below(rng, 2) > 0,
                           .workspace = workspace()};
    it.a = it.a_transposed ? matrix(rng, it.k, it.m, 1) : matrix(rng, it.m, it.k, 1);
    it.b = it.b_transposed ? matrix(rng, it.n, it.k, 2) : matrix(rng, it.k, it.n, 2);
    it.c = matrix(rng, it.m, it.n, 3);
    if (rpi_rng_below(rng, 2)) it.bias = kernel_normal(it.n, 1, 4);
    return it;
}

static void run_sgemm(const rpi_kernel_run *run, const void *args) {
    rpi_kernel_sgemm_run(run, args);
}

/* Sums of k products of normal numbers, in double by the definition. What lies between the rows
 * of c stays, and so does what lies behind. */
static void product_matches(const char *what, const rpi_kernel_sgemm *it) {
    char name[96];
    (void)snprintf(name, sizeof name, "%s: %lld x %lld x %lld %c%c", what, (long long)it->m,
                   (long long)it->n, (long long)it->k, it->a_transposed ? 'T' : 'N',
                   it->b_transposed ? 'T' : 'N');
    kernel_check(&(kernel_case){.name = name,
                                .call = run_sgemm,
                                .args = it,
                                .outputs = {{.name = "c",
                                             .data = it->c.data,
                                             .count = it->m * it->c.stride,
                                             .dtype = RP_F32,
                                             .absolute = 1e-5 * sqrt((double)it->k)}}});
    kernel_buffers_free();
}

static void products_match_with(bool narrow_l1) {
    rpi_sgemm_set_l1(narrow_l1);
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    for (int i = 0; i < SHAPES; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "product %d", i);
        const rpi_kernel_sgemm it = draw(&rng, i);
        product_matches(name, &it);
    }
}

static void products_match(void) {
    const bool narrow = rpi_sgemm_l1_is_narrow();
    products_match_with(!narrow);
    products_match_with(narrow);
}

/* Rows 4 KB apart, or a multiple, which all want the same places of an L1 cache. */
static void rows_of_4_kb_match(void) {
    enum { M = 45, N = 70, STRIDE = 1024 };
    static const int64_t depths[] = {16, 300, 1024};
    const bool narrow = rpi_sgemm_l1_is_narrow();
    rpi_sgemm_set_l1(true);
    for (int i = 0; i < 3; i++) {
        const int64_t stride = STRIDE * (i + 1);
        const rpi_kernel_sgemm it = {
            .m = M,
            .n = N,
            .k = depths[i],
            .a = rpi_kernel_f32(kernel_normal(M * stride, 1, 1), stride),
            .b = rpi_kernel_f32(kernel_normal(N * stride, 1, 2), stride),
            .b_transposed = true,
            .c = rpi_kernel_f32(kernel_normal(M * stride, 1, 3), stride),
            .accumulate = i == 1,
            .workspace = workspace()};
        product_matches("rows of 4 KB", &it);
    }
    rpi_sgemm_set_l1(narrow);
}

/* An element's bits depend on its row and column alone, not on what else is in c. */
static void a_part_has_the_same_bits(void) {
    enum { M = 45, N = 70, K = 600 };
    const rpi_kernel_run run = {1, rpi_cpu_isa()};
    float *whole = kernel_floats(M * N), *part = kernel_floats(M * N);
    rpi_kernel_sgemm it = {.m = M,
                           .n = N,
                           .k = K,
                           .a = rpi_kernel_f32(kernel_normal(M * K, 1, 1), K),
                           .b = rpi_kernel_f32(kernel_normal(K * N, 1, 2), N),
                           .c = rpi_kernel_f32(whole, N),
                           .workspace = workspace()};
    rpi_kernel_sgemm_run(&run, &it);
    it.m = 1;
    it.n = 3;
    it.a.data = (float *)it.a.data + 44 * K;
    it.b.data = (float *)it.b.data + 67;
    it.c.data = part;
    rpi_kernel_sgemm_run(&run, &it);
    for (int j = 0; j < 3; j++) CHECK(part[j] == whole[44 * N + 67 + j]);
    kernel_buffers_free();
}

/* NaN and infinities go where the definition sends them and nowhere else, though packed factors
 * have zeros beside them; k of 0 leaves the bias, and what was. */
static void the_unusual(const rpi_kernel_run *run) {
    float a[] = {1, INFINITY, NAN, 0, 2, 3}, b[] = {1, 0, -1, 2, 0, 1}, c[4] = {5, 5, 5, 5};
    const float bias[] = {10, 20};
    rpi_kernel_sgemm it = {.m = 2,
                           .n = 2,
                           .k = 3,
                           .a = rpi_kernel_f32(a, 3),
                           .b = rpi_kernel_f32(b, 2),
                           .c = rpi_kernel_f32(c, 2),
                           .workspace = workspace()};
    rpi_kernel_sgemm_run(run, &it);
    CHECK(isnan(c[0]) && isnan(c[1]));
    CHECK(c[2] == -2 && c[3] == 7);
    a[2] = 0;
    rpi_kernel_sgemm_run(run, &it);
    CHECK(isinf(c[0]) && c[0] < 0 && isinf(c[1]) && c[1] > 0);
    it.bias = bias;
    rpi_kernel_sgemm_run(run, &it);
    CHECK(c[2] == 8 && c[3] == 27);
    it.k = 0;
    it.accumulate = true;
    rpi_kernel_sgemm_run(run, &it);
    CHECK(c[2] == 18 && c[3] == 47);
    it.accumulate = false;
    rpi_kernel_sgemm_run(run, &it);
    CHECK(c[0] == 10 && c[3] == 20);
    it.m = 0;
    rpi_kernel_sgemm_run(run, &it);
    CHECK(c[0] == 10 && c[3] == 20);
}

static void the_unusual_on_all(void) {
    for (int isa = 0; isa <= (int)rpi_cpu_isa(); isa++)
        the_unusual(&(rpi_kernel_run){1, (rpi_isa)isa});
}

CASES({"products_match", products_match}, {"rows_of_4_kb_match", rows_of_4_kb_match},
      {"a_part_has_the_same_bits", a_part_has_the_same_bits},
      {"the_unusual_on_all", the_unusual_on_all})
