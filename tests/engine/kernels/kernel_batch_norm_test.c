#include "kernel_fixture.h"

#include "engine/backends/cpu/kernels/kernel_batch_norm.h"

#include <math.h>
#include <string.h>

enum { SHAPES = 48, BLOCK = RPI_BATCH_NORM_BLOCK };

#define CALL(name)                                                                             \
    static void name(const rpi_kernel_run *run, const void *args) {                            \
        rpi_kernel_##name(run, (const rpi_kernel_batch_norm *)args);                           \
    }
CALL(batch_norm_forward)
CALL(batch_norm_backward)

static rpi_kernel_rows matrix(rpi_rng *rng, int64_t rows, int64_t cols, uint64_t stream) {
    if (rpi_rng_below(rng, 2))
        return rpi_kernel_bf16(kernel_bf16s(rows * cols, 1, stream), cols);
    return rpi_kernel_f32(kernel_normal(rows * cols, 1, stream), cols);
}

static kernel_output output(const char *name, rpi_kernel_rows m, int64_t rows) {
    const bool bf16 = m.dtype == RP_BF16;
    return (kernel_output){
        name, m.data, rows * m.stride, m.dtype, bf16 ? 0x1p-7 : 1e-5, bf16 ? 1e-4 : 1e-5};
}

static kernel_output floats(const char *name, float *data, int64_t count) {
    return (kernel_output){name, data, count, RP_F32, 1e-5, 1e-4};
}

static rpi_kernel_batch_norm draw(rpi_rng *rng, int index) {
    const int64_t images = kernel_size(rng, 6), blocks = kernel_size(rng, 5);
    const int64_t pixels = kernel_size(rng, 200), channels = blocks * BLOCK;
    const int64_t rows = images * blocks, cols = pixels * BLOCK;
    rpi_kernel_batch_norm it = {.images = images,
                                .blocks = blocks,
                                .pixels = pixels,
                                .relu = index % 2,
                                .epsilon = 1e-3f,
                                .scale = kernel_normal(channels, 1, 1),
                                .shift = kernel_normal(channels, 1, 2),
                                .mean = kernel_floats(channels),
                                .variance = kernel_floats(channels),
                                .dscale = kernel_floats(channels),
                                .dshift = kernel_floats(channels)};
    it.x = matrix(rng, rows, cols, 3);
    it.y = matrix(rng, rows, cols, 4);
    it.dy = matrix(rng, rows, cols, 5);
    it.dx = matrix(rng, rows, cols, 6);
    it.adds = index / 2 % 2;
    if (!it.adds) return it;
    it.addend = matrix(rng, rows, cols, 7);
    if (rpi_rng_below(rng, 3)) it.daddend = matrix(rng, rows, cols, 8);
    return it;
}

/* A relu that is closed in one form is open in the other where it is all but 0: such an
 * element's gradient is made 0. With an addend y decides, and all forms are given one. */
static void leave_the_edge(const rpi_kernel_batch_norm *it) {
    if (it->adds) return;
    for (int64_t row = 0; row < it->images * it->blocks; row++)
        for (int64_t i = 0; i < it->x.stride; i++) {
            const int64_t c = row % it->blocks * BLOCK + i % BLOCK;
            const double deviation = sqrt((double)it->variance[c] + (double)it->epsilon);
            const double z = ((double)rpi_kernel_get(it->x, row, i) - it->mean[c]) / deviation;
            if (fabs(z * it->scale[c] + it->shift[c]) < 1e-3) rpi_kernel_put(it->dy, row, i, 0);
        }
}

static void kernels_match(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    for (int i = 0; i < SHAPES; i++) {
        const rpi_kernel_batch_norm it = draw(&rng, i);
        const int64_t rows = it.images * it.blocks, channels = it.blocks * BLOCK;
        const char *name = it.adds   ? "batch norm with an addend"
                           : it.relu ? "batch norm with relu"
                                     : "batch norm";
        kernel_check(&(kernel_case){name,
                                    batch_norm_forward,
                                    &it,
                                    {output("y", it.y, rows), floats("mean", it.mean, channels),
                                     floats("variance", it.variance, channels)}});
        leave_the_edge(&it);
        kernel_check(&(kernel_case){
            name,
            batch_norm_backward,
            &it,
            {output("dx", it.dx, rows), floats("dscale", it.dscale, channels),
             floats("dshift", it.dshift, channels), output("daddend", it.daddend, rows)}});
        kernel_buffers_free();
    }
}

static bool are_same(const void *a, const void *b, int64_t floats) {
    return memcmp(a, b, (size_t)floats * sizeof(float)) == 0;
}

/* What a residual block does: the sum is made in the addend's place, its gradient in that of
 * the output's; neither changes a bit. */
static void in_place(void) {
    enum { IMAGES = 3, BLOCKS = 5, PIXELS = 50, ROW = PIXELS * BLOCK, ROWS = IMAGES * BLOCKS };
    const rpi_kernel_run run = {2, rpi_cpu_isa()};
    float vectors[6][BLOCKS * BLOCK], *addend = kernel_normal(ROWS * ROW, 1, 2);
    float *dy = kernel_normal(ROWS * ROW, 1, 3), *y = kernel_floats(ROWS * ROW);
    float *dx = kernel_floats(ROWS * ROW), *daddend = kernel_floats(ROWS * ROW);
    float *dx_too = kernel_floats(ROWS * ROW);
    for (int c = 0; c < BLOCKS * BLOCK; c++) vectors[0][c] = vectors[1][c] = 1;
    rpi_kernel_batch_norm it = {.images = IMAGES,
                                .blocks = BLOCKS,
                                .pixels = PIXELS,
                                .relu = true,
                                .adds = true,
                                .epsilon = 1e-5f,
                                .scale = vectors[0],
                                .shift = vectors[1],
                                .mean = vectors[2],
                                .variance = vectors[3],
                                .dscale = vectors[4],
                                .dshift = vectors[5],
                                .x = rpi_kernel_f32(kernel_normal(ROWS * ROW, 1, 1), ROW),
                                .addend = rpi_kernel_f32(addend, ROW),
                                .y = rpi_kernel_f32(y, ROW),
                                .dy = rpi_kernel_f32(dy, ROW),
                                .dx = rpi_kernel_f32(dx, ROW),
                                .daddend = rpi_kernel_f32(daddend, ROW)};
    rpi_kernel_batch_norm_forward(&run, &it);
    rpi_kernel_batch_norm_backward(&run, &it);
    it.y = it.addend;
    it.daddend = it.dy;
    it.dx = rpi_kernel_f32(dx_too, ROW);
    rpi_kernel_batch_norm_forward(&run, &it);
    rpi_kernel_batch_norm_backward(&run, &it);
    CHECK(are_same(addend, y, ROWS * ROW) && are_same(dy, daddend, ROWS * ROW) &&
          are_same(dx_too, dx, ROWS * ROW));
    kernel_buffers_free();
}

/* A mean that is large beside the deviation costs no digits of the variance; a constant has
 * none. */
static void far_from_zero(void) {
    enum { IMAGES = 4, PIXELS = 300, COUNT = IMAGES * PIXELS * BLOCK };
    const rpi_kernel_run run = {1, rpi_cpu_isa()};
    float *x = kernel_normal(COUNT, 1, 1), *scale = kernel_normal(BLOCK, 1, 2);
    float mean[BLOCK], variance[BLOCK];
    const rpi_kernel_batch_norm it = {.images = IMAGES,
                                      .blocks = 1,
                                      .pixels = PIXELS,
                                      .epsilon = 1e-5f,
                                      .scale = scale,
                                      .shift = scale,
                                      .mean = mean,
                                      .variance = variance,
                                      .x = rpi_kernel_f32(x, PIXELS * BLOCK),
                                      .y = rpi_kernel_f32(x, PIXELS * BLOCK)};
    for (int i = 0; i < COUNT; i++) x[i] = i % BLOCK == 3 ? 7 : 1000 + x[i];
    rpi_kernel_batch_norm_forward(&run, &it);
    CHECK(mean[3] == 7 && variance[3] == 0);
    for (int c = 0; c < BLOCK; c++)
        CHECK_MSG(c == 3 || fabsf(variance[c] - 1) < 0.2f, "variance %g", (double)variance[c]);
    kernel_buffers_free();
}

/* NaN and infinity spoil their channel and no other, in every form. */
static void the_unusual(const rpi_kernel_run *run, float what) {
    enum { PIXELS = 9 };
    float *x = kernel_normal((int64_t)2 * PIXELS * BLOCK, 1, 1);
    float *y = kernel_floats((int64_t)2 * PIXELS * BLOCK);
    float scale[BLOCK], mean[BLOCK], variance[BLOCK];
    for (int c = 0; c < BLOCK; c++) scale[c] = 1;
    const rpi_kernel_batch_norm it = {.images = 2,
                                      .blocks = 1,
                                      .pixels = PIXELS,
                                      .relu = true,
                                      .epsilon = 1e-5f,
                                      .scale = scale,
                                      .shift = scale,
                                      .mean = mean,
                                      .variance = variance,
                                      .x = rpi_kernel_f32(x, PIXELS * BLOCK),
                                      .y = rpi_kernel_f32(y, PIXELS * BLOCK)};
    x[5] = what;
    rpi_kernel_batch_norm_forward(run, &it);
    CHECK(isnan(variance[5]) && (isnan(what) ? isnan(mean[5]) : mean[5] == what));
    for (int i = 0; i < 2 * PIXELS * BLOCK; i++)
        CHECK(i % BLOCK == 5 ? isnan(y[i]) : isfinite(y[i]) && y[i] >= 0);
    kernel_buffers_free();
}

static void the_unusual_on_all(void) {
    for (int isa = 0; isa <= (int)rpi_cpu_isa(); isa++) {
        const rpi_kernel_run run = {1, (rpi_isa)isa};
        the_unusual(&run, NAN);
        the_unusual(&run, INFINITY);
        the_unusual(&run, -INFINITY);
    }
}

CASES({"kernels_match", kernels_match}, {"in_place", in_place},
      {"far_from_zero", far_from_zero}, {"the_unusual_on_all", the_unusual_on_all})
