#include "kernel_fixture.h"

#include "engine/backends/cpu/kernels/kernel_group_norm.h"

#include <math.h>
#include <string.h>

enum { SHAPES = 96, WIDEST_BLOCK = 16 };

#define CALL(name)                                                                             \
    static void name(const rpi_kernel_run *run, const void *args) {                            \
        rpi_kernel_##name(run, (const rpi_kernel_group_norm *)args);                           \
    }
CALL(group_norm_forward)
CALL(group_norm_backward)

/* ---- drawing ---- */

static int64_t rows_of(const rpi_kernel_group_norm *it) {
    return it->images * rpi_group_norm_blocks(it);
}

/* Zeros pad the last block. */
static void pad(const rpi_kernel_group_norm *it, rpi_kernel_rows m) {
    for (int64_t row = 0; row < rows_of(it); row++)
        for (int64_t i = 0; i < m.stride; i++)
            if (row % rpi_group_norm_blocks(it) * it->block + i % it->block >= it->channels)
                rpi_kernel_put(m, row, i, 0);
}

/* Of bf16, sometimes, where blocks are full. */
static rpi_kernel_rows matrix(rpi_rng *rng, const rpi_kernel_group_norm *it, uint64_t stream) {
    const int64_t cols = it->pixels * it->block, count = rows_of(it) * cols;
    const bool full = it->block == WIDEST_BLOCK && it->channels % WIDEST_BLOCK == 0;
    if (full && rpi_rng_below(rng, 2))
        return rpi_kernel_bf16(kernel_bf16s(count, 1, stream), cols);
    const rpi_kernel_rows made = rpi_kernel_f32(kernel_normal(count, 1, stream), cols);
    pad(it, made);
    return made;
}

static kernel_output output(const char *name, rpi_kernel_rows m, int64_t rows) {
    const bool bf16 = m.dtype == RP_BF16;
    return (kernel_output){
        name, m.data, rows * m.stride, m.dtype, bf16 ? 0x1p-7 : 1e-5, bf16 ? 1e-4 : 1e-5};
}

static kernel_output floats(const char *name, float *data, int64_t count) {
    return (kernel_output){name, data, count, RP_F32, 1e-5, 1e-4};
}

/* Groups of 1 to 40 channels: parts of a block, one, several, and across their edges. */
static rpi_kernel_group_norm draw(rpi_rng *rng, int index) {
    static const int64_t blocks[] = {1, 8, 16, 16};
    static const int64_t sizes[] = {1, 2, 4, 8, 16, 32, 3, 24, 40};
    rpi_kernel_group_norm it = {.images = kernel_size(rng, 4),
                                .groups = kernel_size(rng, 6),
                                .pixels = kernel_size(rng, 70),
                                .block = blocks[index / 4 % 4],
                                .relu = index % 2,
                                .adds = index / 2 % 2,
                                .epsilon = 1e-3f,
                                .sums_to_dscale = rpi_rng_below(rng, 2),
                                .sums_to_dshift = rpi_rng_below(rng, 2)};
    it.channels = it.groups * sizes[rpi_rng_below(rng, sizeof sizes / sizeof sizes[0])];
    it.scale = kernel_normal(it.channels, 1, 1);
    it.shift = kernel_normal(it.channels, 1, 2);
    it.mean = kernel_floats(it.images * it.groups);
    it.inverse = kernel_floats(it.images * it.groups);
    it.room = kernel_floats(rpi_group_norm_room(it.images, it.channels, it.groups));
    it.dscale = kernel_normal(it.channels, 1, 9);
    it.dshift = kernel_normal(it.channels, 1, 10);
    it.x = matrix(rng, &it, 3);
    it.y = matrix(rng, &it, 4);
    it.dy = matrix(rng, &it, 5);
    if (rpi_rng_below(rng, 4)) it.dx = matrix(rng, &it, 6);
    if (it.adds) it.addend = matrix(rng, &it, 7);
    if (it.adds && rpi_rng_below(rng, 3)) it.daddend = matrix(rng, &it, 8);
    return it;
}

/* ---- cases ---- */

/* A relu that is closed in one form is open in the other where it is all but 0: such an
 * element's gradient is made 0. With an addend y decides, and all forms are given one. */
static void leave_the_edge(const rpi_kernel_group_norm *it) {
    if (it->adds) return;
    const int64_t blocks = rpi_group_norm_blocks(it), size = it->channels / it->groups;
    for (int64_t row = 0; row < rows_of(it); row++)
        for (int64_t i = 0; i < it->x.stride; i++) {
            const int64_t c = row % blocks * it->block + i % it->block;
            if (c >= it->channels) continue;
            const int64_t g = row / blocks * it->groups + c / size;
            const double z =
                ((double)rpi_kernel_get(it->x, row, i) - it->mean[g]) * it->inverse[g];
            if (fabs(z * it->scale[c] + it->shift[c]) < 1e-3) rpi_kernel_put(it->dy, row, i, 0);
        }
}

/* All gradients, or those of parameters alone; of the outputs there may be none. */
static void check_backward(const char *name, const rpi_kernel_group_norm *it) {
    kernel_case backward = {name, group_norm_backward, it, {{0}}};
    int count = 0;
    backward.outputs[count++] = floats("dscale", it->dscale, it->channels);
    backward.outputs[count++] = floats("dshift", it->dshift, it->channels);
    if (it->dx.data) backward.outputs[count++] = output("dx", it->dx, rows_of(it));
    if (it->daddend.data)
        backward.outputs[count++] = output("daddend", it->daddend, rows_of(it));
    kernel_check(&backward);
}

static void kernels_match(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    for (int i = 0; i < SHAPES; i++) {
        const rpi_kernel_group_norm it = draw(&rng, i);
        char name[128];
        snprintf(name, sizeof name,
                 "group norm of %lld x %lld x %lld in %lld, blocks of %lld%s",
                 (long long)it.images, (long long)it.channels, (long long)it.pixels,
                 (long long)it.groups, (long long)it.block,
                 it.adds   ? (it.relu ? ", sum and relu" : ", sum")
                 : it.relu ? ", relu"
                           : "");
        kernel_check(&(kernel_case){name,
                                    group_norm_forward,
                                    &it,
                                    {output("y", it.y, rows_of(&it)),
                                     floats("mean", it.mean, it.images * it.groups),
                                     floats("inverse", it.inverse, it.images * it.groups)}});
        leave_the_edge(&it);
        check_backward(name, &it);
        kernel_buffers_free();
    }
}

/* Of a size that every layout can hold: 40 channels fill no whole number of blocks of 16. */
enum { IMAGES = 3, CHANNELS = 40, PIXELS = 21, GROUPS = 5 };
enum { COUNT = IMAGES * 48 * PIXELS, STATISTICS = IMAGES * GROUPS };

static rpi_kernel_group_norm usual(int64_t block, const float *scale, float *x, float *y) {
    return (rpi_kernel_group_norm){
        .images = IMAGES,
        .channels = CHANNELS,
        .pixels = PIXELS,
        .groups = GROUPS,
        .block = block,
        .epsilon = 1e-5f,
        .scale = scale,
        .shift = scale,
        .mean = kernel_floats(STATISTICS),
        .inverse = kernel_floats(STATISTICS),
        .room = kernel_floats(rpi_group_norm_room(IMAGES, CHANNELS, GROUPS)),
        .x = rpi_kernel_f32(x, PIXELS * block),
        .y = rpi_kernel_f32(y, PIXELS * block)};
}

/* Where an element of a row-major image lies. */
static int64_t place(const rpi_kernel_group_norm *it, int64_t n, int64_t c, int64_t p) {
    return ((n * rpi_group_norm_blocks(it) + c / it->block) * it->pixels + p) * it->block +
           c % it->block;
}

/* The gradients are those of the forward kernel. */
static void gradients(void) {
    static const int64_t blocks[] = {1, 8, 16};
    for (int i = 0; i < 3 * 2; i++) {
        const rpi_kernel_run run = {2, i % 2 ? rpi_cpu_isa() : RPI_ISA_SCALAR};
        float *x = kernel_normal(COUNT, 1, 1), *dy = kernel_normal(COUNT, 1, 3);
        float *scale = kernel_normal(CHANNELS, 1, 2);
        float *y = kernel_floats(COUNT), *dx = kernel_floats(COUNT);
        rpi_kernel_group_norm it = usual(blocks[i / 2], scale, x, y);
        const int64_t count = rows_of(&it) * it.x.stride;
        it.dy = rpi_kernel_f32(dy, it.x.stride);
        it.dx = rpi_kernel_f32(dx, it.x.stride);
        it.dscale = kernel_floats(CHANNELS);
        it.dshift = kernel_floats(CHANNELS);
        pad(&it, it.x);
        pad(&it, it.dy);
        rpi_kernel_group_norm_forward(&run, &it);
        rpi_kernel_group_norm_backward(&run, &it);
        kernel_check_gradient(&(kernel_gradient){"group norm: x", group_norm_forward, &it, x,
                                                 dx, count, y, dy, count, 1e-2, 5e-3});
        for (int64_t c = 0; c < CHANNELS; c++) it.dscale[c] += it.dshift[c]; /* one vector */
        kernel_check_gradient(&(kernel_gradient){"group norm: scale and shift",
                                                 group_norm_forward, &it, scale, it.dscale,
                                                 CHANNELS, y, dy, count, 1e-2, 5e-3});
        kernel_buffers_free();
    }
}

/* Of all elements of a group in an image, in double. */
static double variance_of(const rpi_kernel_group_norm *it, const float *x, int64_t group) {
    enum { SIZE = CHANNELS / GROUPS, ELEMENTS = SIZE * PIXELS };
    double sum = 0, squares = 0;
    for (int i = 0; i < ELEMENTS; i++) {
        const int64_t channel = group % GROUPS * SIZE + i / PIXELS;
        const double z = (double)x[place(it, group / GROUPS, channel, i % PIXELS)] - 1000;
        sum += z;
        squares += z * z;
    }
    return squares / ELEMENTS - sum / ELEMENTS * (sum / ELEMENTS);
}

/* A mean that is large beside the deviation costs no digits of the variance; a constant has
 * none. */
static void far_from_zero(void) {
    static const int64_t blocks[] = {1, 8, 16};
    for (int i = 0; i < 3; i++) {
        const rpi_kernel_run run = {1, rpi_cpu_isa()};
        float *x = kernel_normal(COUNT, 1, 1), *scale = kernel_normal(CHANNELS, 1, 2);
        rpi_kernel_group_norm it = usual(blocks[i], scale, x, kernel_floats(COUNT));
        pad(&it, it.x);
        for (int64_t n = 0; n < IMAGES; n++)
            for (int64_t c = 0; c < CHANNELS; c++)
                for (int64_t p = 0; p < PIXELS; p++) {
                    float *element = &x[place(&it, n, c, p)];
                    *element = c < CHANNELS / GROUPS ? 7 : 1000 + *element;
                }
        rpi_kernel_group_norm_forward(&run, &it);
        for (int64_t g = 0; g < STATISTICS; g++) {
            const double variance = 1 / ((double)it.inverse[g] * (double)it.inverse[g]);
            if (g % GROUPS == 0)
                CHECK(it.mean[g] == 7 && fabs(variance - (double)it.epsilon) < 1e-9);
            else
                CHECK_MSG(fabs(variance / variance_of(&it, x, g) - 1) < 1e-3,
                          "variance %g, not %g", variance, variance_of(&it, x, g));
        }
        kernel_buffers_free();
    }
}

/* NaN and infinity spoil their group in their image and no other, in every form. */
static void the_unusual(const rpi_kernel_run *run, int64_t block, float what) {
    enum { IMAGE = 1, CHANNEL = 19, SIZE = CHANNELS / GROUPS };
    float *x = kernel_normal(COUNT, 1, 1), *y = kernel_floats(COUNT), scale[CHANNELS];
    for (int c = 0; c < CHANNELS; c++) scale[c] = 1;
    rpi_kernel_group_norm it = usual(block, scale, x, y);
    it.relu = true;
    pad(&it, it.x);
    x[place(&it, IMAGE, CHANNEL, 5)] = what;
    rpi_kernel_group_norm_forward(run, &it);
    for (int64_t n = 0; n < IMAGES; n++)
        for (int64_t c = 0; c < CHANNELS; c++)
            for (int64_t p = 0; p < PIXELS; p++) {
                const float value = y[place(&it, n, c, p)];
                const bool spoilt = n == IMAGE && c / SIZE == CHANNEL / SIZE;
                CHECK(spoilt ? isnan(value) : isfinite(value) && value >= 0);
            }
    kernel_buffers_free();
}

static void the_unusual_on_all(void) {
    static const int64_t blocks[] = {1, 8, 16};
    for (int isa = 0; isa <= (int)rpi_cpu_isa(); isa++)
        for (int i = 0; i < 3; i++) {
            const rpi_kernel_run run = {1, (rpi_isa)isa};
            the_unusual(&run, blocks[i], NAN);
            the_unusual(&run, blocks[i], INFINITY);
            the_unusual(&run, blocks[i], -INFINITY);
        }
}

/* The sum of a residual block is made in the addend's place, its gradient in that of the
 * output's, and without a sum the input's there; neither changes a bit. */
static void in_place(void) {
    const rpi_kernel_run run = {2, rpi_cpu_isa()};
    for (int adds = 0; adds < 2; adds++) {
        const int64_t stride = PIXELS * 16;
        float *x = kernel_normal(COUNT, 1, 1), *addend = kernel_normal(COUNT, 1, 2);
        float *dy = kernel_normal(COUNT, 1, 3), *y = kernel_floats(COUNT);
        float *dx = kernel_floats(COUNT), *daddend = kernel_floats(COUNT);
        float *dx_too = kernel_floats(COUNT);
        rpi_kernel_group_norm it = usual(16, kernel_normal(CHANNELS, 1, 4), x, y);
        it.relu = true;
        it.adds = adds;
        if (adds) it.addend = rpi_kernel_f32(addend, stride);
        if (adds) it.daddend = rpi_kernel_f32(daddend, stride);
        it.dy = rpi_kernel_f32(dy, stride);
        it.dx = rpi_kernel_f32(dx, stride);
        it.dscale = kernel_floats(CHANNELS);
        pad(&it, it.x);
        pad(&it, it.dy);
        if (adds) pad(&it, it.addend);
        rpi_kernel_group_norm_forward(&run, &it);
        rpi_kernel_group_norm_backward(&run, &it);
        if (adds) it.y = it.addend;
        if (adds) it.daddend = it.dy;
        it.dx = adds ? rpi_kernel_f32(dx_too, stride) : it.dy;
        rpi_kernel_group_norm_forward(&run, &it);
        rpi_kernel_group_norm_backward(&run, &it);
        CHECK(!adds || memcmp(addend, y, COUNT * sizeof *y) == 0);
        CHECK(!adds || memcmp(dy, daddend, COUNT * sizeof *dy) == 0);
        CHECK(memcmp(it.dx.data, dx, COUNT * sizeof *dx) == 0);
        kernel_buffers_free();
    }
}

CASES({"kernels_match", kernels_match}, {"gradients", gradients},
      {"far_from_zero", far_from_zero}, {"the_unusual_on_all", the_unusual_on_all},
      {"in_place", in_place})
