#include "kernel_fixture.h"

#include "base/memory.h"
#include "engine/backends/cpu/kernels/kernel_matmul.h"
#include "engine/team/team.h"

#include <math.h>
#include <string.h>

enum { SHAPES = 60, THREADS = 3 };

static void *workspace(void) {
    static void *bytes;
    const rpi_kernel_run run = {.threads = THREADS};
    if (!bytes) CHECK_OK(rpi_alloc(rpi_kernel_matmul_workspace(&run), "workspace", &bytes));
    return bytes;
}

static rpi_kernel_rows factor(rpi_rng *rng, int64_t rows, int64_t cols, uint64_t stream) {
    int64_t stride = cols + rpi_rng_below(rng, 3);
    if (rpi_rng_below(rng, 2))
        return rpi_kernel_bf16(kernel_bf16s(rows * stride, 1, stream), stride);
    return rpi_kernel_f32(kernel_normal(rows * stride, 1, stream), stride);
}

/* Every fourth has sizes beyond one packing. */
static rpi_kernel_matmul draw(rpi_rng *rng, int index) {
    const bool large = index % 4 == 0;
    rpi_kernel_matmul it = {.m = kernel_size(rng, large ? 600 : 70),
                            .n = kernel_size(rng, large && index % 8 ? 300 : 70),
                            .k = kernel_size(rng, large ? 900 : 100),
                            .a_transposed = rpi_rng_below(rng, 2) > 0,
                            .b_transposed = rpi_rng_below(rng, 2) > 0,
                            .accumulate = rpi_rng_below(rng, 2) > 0,
                            .workspace = workspace()};
    it.a = it.a_transposed ? factor(rng, it.k, it.m, 1) : factor(rng, it.m, it.k, 1);
    it.b = it.b_transposed ? factor(rng, it.n, it.k, 2) : factor(rng, it.k, it.n, 2);
    int64_t stride = it.n + rpi_rng_below(rng, 3);
    it.c = rpi_kernel_f32(kernel_normal(it.m * stride, 1, 3), stride);
    if (rpi_rng_below(rng, 2)) it.bias = kernel_normal(it.n, 1, 4);
    return it;
}

/* The product from what c holds now; the result is a copy. */
static float *product(const rpi_kernel_run *run, const rpi_kernel_matmul *args,
                      rpi_matmul_form form) {
    const int64_t count = args->m * args->c.stride;
    float *c = kernel_floats(count);
    memcpy(c, args->c.data, (size_t)count * sizeof *c);
    rpi_kernel_matmul it = *args;
    it.c.data = c;
    rpi_kernel_matmul_run_by(run, &it, form);
    return c;
}

static void check_product(int index, const rpi_kernel_matmul *it, const float *wanted,
                          rpi_matmul_form form) {
    const rpi_kernel_run fast = {1, rpi_cpu_isa()}, threads = {THREADS, rpi_cpu_isa()};
    const int64_t count = it->m * it->c.stride;
    const float *found = product(&fast, it, form);
    const double tolerance = 1e-5 * sqrt((double)it->k);
    for (int64_t j = 0; j < count + KERNEL_GUARD; j++)
        CHECK_MSG(fabsf(found[j] - wanted[j]) <= tolerance,
                  "product %d, %lld x %lld x %lld, form %d: element %lld is %.9g, not %.9g",
                  index, (long long)it->m, (long long)it->n, (long long)it->k, (int)form,
                  (long long)j, (double)found[j], (double)wanted[j]);
    CHECK_MSG(!memcmp(found, product(&threads, it, form), (size_t)count * sizeof *found),
              "product %d, form %d: other bits with %d threads", index, (int)form, THREADS);
    rpi_team_assume_company(60); /* work may be cut finer then */
    CHECK_MSG(!memcmp(found, product(&threads, it, form), (size_t)count * sizeof *found),
              "product %d, form %d: other bits in company", index, (int)form);
    rpi_team_assume_company(0);
}

/* All round the factors alike, so that only sums differ: of k products of normal numbers. What
 * lies between the rows of c stays, and so does what lies behind. */
static void products_match(void) {
    const rpi_kernel_run slow = {1, RPI_ISA_SCALAR};
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    for (int i = 0; i < SHAPES; i++) {
        const rpi_kernel_matmul it = draw(&rng, i);
        const float *wanted = product(&slow, &it, RPI_MATMUL_SCALAR);
        for (int form = RPI_MATMUL_SCALAR + 1; form <= (int)rpi_kernel_matmul_form(); form++)
            check_product(i, &it, wanted, (rpi_matmul_form)form);
        kernel_buffers_free();
    }
}

/* Rows of pixels: the input of a convolution over a window of one pixel, and its output, each
 * of f32 or bf16. c of bf16 is rounded once. */
static void pixels_match(void) {
    enum { IMAGES = 2 };
    const rpi_kernel_run slow = {1, RPI_ISA_SCALAR}, fast = {1, rpi_cpu_isa()};
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 2);
    for (int i = 0; i < SHAPES; i++) {
        const int64_t rows = kernel_size(&rng, 9), cols = kernel_size(&rng, 9);
        const int64_t in = 16 * (1 + rpi_rng_below(&rng, 4)), stride = 1 + i % 2;
        const int64_t out = 16 * (1 + rpi_rng_below(&rng, 4));
        const int64_t height = rows * stride, width = cols * stride;
        const rpi_matmul_pixels x = {rows, cols, in / 16, height, width, stride, 0, 0, 1};
        const rpi_matmul_pixels y = {rows, cols, out / 16, rows, cols, 1, 0, 0, 1};
        const bool half_in = rpi_rng_below(&rng, 2), half_out = rpi_rng_below(&rng, 2);
        const int64_t read = IMAGES * height * width * in, made = IMAGES * rows * cols * out;
        rpi_kernel_matmul it = {
            .m = IMAGES * rows * cols,
            .n = out,
            .k = in,
            .a = half_in ? rpi_kernel_bf16(kernel_bf16s(read, 1, 1), 0)
                         : rpi_kernel_f32(kernel_normal(read, 1, 1), 0),
            .a_pixels = &x,
            .b = rpi_kernel_f32(kernel_normal(in * out, 1, 2), in),
            .b_transposed = true,
            .c = half_out ? rpi_kernel_bf16(kernel_bf16s(made, 1, 3), 0)
                          : rpi_kernel_f32(kernel_normal(made, 1, 3), 0),
            .c_pixels = &y,
            .workspace = workspace(),
        };
        rpi_kernel_matmul_run(&slow, &it);
        float *wanted = kernel_floats(made);
        for (int64_t j = 0; j < made; j++) wanted[j] = rpi_kernel_get(it.c, 0, j);
        rpi_kernel_matmul_run(&fast, &it);
        for (int64_t j = 0; j < made; j++) {
            const float found = rpi_kernel_get(it.c, 0, j);
            const float tolerance = half_out ? 0x1p-7f * fabsf(wanted[j]) + 1e-4f : 1e-4f;
            CHECK_MSG(fabsf(found - wanted[j]) <= tolerance,
                      "product %d: element %lld is %.9g, not %.9g", i, (long long)j,
                      (double)found, (double)wanted[j]);
        }
        kernel_buffers_free();
    }
}

/* The gradient of a strided convolution's input: windows of one and of three pixels, images
 * that end with the stride and before it, written and added to. */
static void strides_go_back(void) {
    enum { IMAGES = 2 };
    const rpi_kernel_run slow = {1, RPI_ISA_SCALAR}, fast = {1, rpi_cpu_isa()},
                         threads = {THREADS, rpi_cpu_isa()};
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 3);
    for (int i = 0; i < SHAPES; i++) {
        const int64_t height = 3 + kernel_size(&rng, 9), width = 3 + kernel_size(&rng, 9);
        const int64_t window = i % 3 ? 3 : 1, padding = window / 2, stride = 2 + i / 2 % 2;
        const int64_t rows = (height + 2 * padding - window) / stride + 1;
        const int64_t cols = (width + 2 * padding - window) / stride + 1;
        const int64_t in = 16 * (1 + rpi_rng_below(&rng, 4));
        const int64_t out = 16 * (1 + rpi_rng_below(&rng, 4));
        const rpi_matmul_pixels dy = {height, width,   out / 16, rows,  cols,
                                      1,      padding, padding,  stride};
        const rpi_matmul_pixels dx = {height, width, in / 16, height, width, 1, 0, 0, 1};
        rpi_kernel_matmul it = {
            .m = IMAGES * height * width,
            .n = in,
            .k = out,
            .a = rpi_kernel_f32(kernel_normal(IMAGES * rows * cols * out, 1, 1), 0),
            .a_pixels = &dy,
            .b = rpi_kernel_f32(kernel_normal(window * window * in * out, 1, 2), in),
            .c = rpi_kernel_f32(kernel_normal(IMAGES * height * width * in, 1, 3), 0),
            .c_pixels = &dx,
            .accumulate = i % 4 == 0,
            .window = window,
            .tap = in * out,
            .step = -1,
            .workspace = workspace(),
        };
        const int64_t made = it.m * in;
        it.c.stride = in; /* product() copies rows */
        const float *wanted = product(&slow, &it, RPI_MATMUL_SCALAR);
        const float *found = product(&fast, &it, RPI_MATMUL_AMX);
        for (int64_t j = 0; j < made + KERNEL_GUARD; j++)
            CHECK_MSG(fabsf(found[j] - wanted[j]) <= 1e-4f,
                      "product %d, window %lld, stride %lld: element %lld is %.9g, not %.9g", i,
                      (long long)window, (long long)stride, (long long)j, (double)found[j],
                      (double)wanted[j]);
        CHECK_MSG(!memcmp(found, product(&threads, &it, RPI_MATMUL_AMX),
                          (size_t)made * sizeof *found),
                  "product %d: other bits with %d threads", i, THREADS);
        kernel_buffers_free();
    }
}

/* NaN and infinities go where the definition sends them; k of 0 leaves zeros, or what was. */
static void check_unusual(rpi_matmul_form form) {
    const rpi_kernel_run run = {1, rpi_cpu_isa()};
    float a[] = {1, INFINITY, NAN, 0, 2, 3}, b[] = {1, 0, -1, 2, 0, 1}, c[4] = {5, 5, 5, 5};
    rpi_kernel_matmul it = {.m = 2,
                            .n = 2,
                            .k = 3,
                            .a = rpi_kernel_f32(a, 3),
                            .b = rpi_kernel_f32(b, 2),
                            .c = rpi_kernel_f32(c, 2),
                            .workspace = workspace()};
    rpi_kernel_matmul_run_by(&run, &it, form);
    CHECK(isnan(c[0]) && isnan(c[1]));
    CHECK(c[2] == -2 && c[3] == 7);
    a[2] = 0;
    rpi_kernel_matmul_run_by(&run, &it, form);
    CHECK(isinf(c[0]) && c[0] < 0 && isinf(c[1]) && c[1] > 0);
    it.k = 0;
    it.accumulate = true;
    rpi_kernel_matmul_run_by(&run, &it, form);
    CHECK(c[2] == -2 && c[3] == 7);
    it.accumulate = false;
    it.bias = b;
    rpi_kernel_matmul_run_by(&run, &it, form);
    CHECK(c[0] == 1 && c[3] == 0);
}

static void the_unusual(void) {
    for (int form = RPI_MATMUL_SCALAR; form <= (int)rpi_kernel_matmul_form(); form++)
        check_unusual((rpi_matmul_form)form);
}

CASES({"products_match", products_match}, {"pixels_match", pixels_match},
      {"strides_go_back", strides_go_back}, {"the_unusual", the_unusual})
