#include "kernel_fixture.h"

#include "base/memory.h"
#include "engine/backends/cpu/kernels/kernel_winograd.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SHAPES = 16, BLOCK = RPI_WINOGRAD_BLOCK };

static void run_forward(const rpi_kernel_run *run, const void *args) {
    rpi_kernel_winograd_run(run, args);
}

static void run_weight(const rpi_kernel_run *run, const void *args) {
    rpi_kernel_winograd_weight_run(run, args);
}

static int64_t outputs(const rpi_winograd_shape *s) {
    return s->images * s->filters * (s->height + 2 * s->padding - 2) *
           (s->width + 2 * s->padding - 2);
}

/* Some of one tile, some of more tiles or panels than are taken at a time, some with a narrow
 * panel. */
static rpi_winograd_shape draw_shape(rpi_rng *rng, int index) {
    rpi_winograd_shape s = {.images = 1 + (int64_t)rpi_rng_below(rng, 3),
                            .channels = BLOCK * (1 + (int64_t)rpi_rng_below(rng, 3)),
                            .filters = BLOCK * (1 + (int64_t)rpi_rng_below(rng, 7)),
                            .height = 3 + (int64_t)rpi_rng_below(rng, 8),
                            .width = 3 + (int64_t)rpi_rng_below(rng, 14),
                            .padding = index % 3};
    if (index % 8 == 3) { /* 11 panels, four and the rest three at a time */
        s.images = 1;
        s.filters = 21 * BLOCK;
        s.channels = 10 * BLOCK;
        s.height = s.width = 5 + (int64_t)(index / 8);
    }
    if (index % 8 != 5) return s;
    s.images = 4;
    s.filters = 7 * BLOCK; /* a panel of 64 and one of 48 */
    s.channels = 3 * BLOCK;
    s.height = s.width = 29 - 2 * (int64_t)(index % 3); /* 256 tiles, 182 at a time */
    return s;
}

static float *workspace_for(const rpi_winograd_shape *s) {
    return kernel_normal((int64_t)(rpi_kernel_winograd_workspace(s) / sizeof(float)), 1, 9);
}

static const char *name_of(const char *what, const rpi_winograd_shape *s, char text[160]) {
    (void)snprintf(text, 160, "%s: %d images of %d x %d, %d channels, %d filters, padding %d",
                   what, (int)s->images, (int)s->height, (int)s->width, (int)s->channels,
                   (int)s->filters, (int)s->padding);
    return text;
}

/* A sum of n products of normal numbers is about sqrt(n); errors grow like it, and the largest
 * of many is some times their deviation, which is checked below. */
static double bound(int64_t terms) {
    return 6e-5 * sqrt((double)terms);
}

static void convolutions_match(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    for (int i = 0; i < SHAPES; i++) {
        char name[160];
        rpi_kernel_winograd it = {.shape = draw_shape(&rng, i),
                                  .turned = rpi_rng_below(&rng, 2),
                                  .accumulate = rpi_rng_below(&rng, 2)};
        const rpi_winograd_shape *s = &it.shape;
        it.x = kernel_normal(s->images * s->channels * s->height * s->width, 1, 1);
        it.weight = kernel_normal(s->filters * s->channels * 9, 1, 2);
        it.y = kernel_normal(outputs(s), 1, 3);
        if (rpi_rng_below(&rng, 2)) it.bias = kernel_normal(s->filters, 1, 4);
        it.workspace = workspace_for(s);
        kernel_check(
            &(kernel_case){name_of(it.turned ? "turned" : "forward", s, name),
                           run_forward,
                           &it,
                           {{"y", it.y, outputs(s), RP_F32, 1e-6, bound(9 * s->channels)}}});
        kernel_buffers_free();
    }
}

static void gradients_of_weights_match(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 2);
    for (int i = 0; i < SHAPES; i++) {
        char name[160];
        rpi_kernel_winograd_weight it = {.shape = draw_shape(&rng, i),
                                         .accumulate = rpi_rng_below(&rng, 2)};
        const rpi_winograd_shape *s = &it.shape;
        int64_t count = s->filters * s->channels * 9;
        it.x = kernel_normal(s->images * s->channels * s->height * s->width, 1, 1);
        it.dy = kernel_normal(outputs(s), 1, 3);
        it.dw = kernel_normal(count, 1, 2);
        it.workspace = workspace_for(s);
        kernel_check(&(kernel_case){
            name_of("gradient", s, name),
            run_weight,
            &it,
            {{"dw", it.dw, count, RP_F32, 1e-6, bound(outputs(s) / s->filters)}}});
        kernel_buffers_free();
    }
}

/* <y, conv(x)> = <x, the input's gradient> = <w, the weight's>: what each is the gradient of.
 */
static double dot(const float *a, const float *b, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

static void the_three_are_of_one_convolution(void) {
    const rpi_winograd_shape s = {2, 32, 48, 9, 6, 1}, back = {2, 48, 32, 9, 6, 1};
    const int64_t inputs = 2 * 32 * 9 * 6, weights = 48 * 32 * 9;
    const rpi_kernel_run run = {2, rpi_cpu_isa()};
    float *x = kernel_normal(inputs, 1, 1), *w = kernel_normal(weights, 1, 2);
    float *dy = kernel_normal(outputs(&s), 1, 3), *y = kernel_floats(outputs(&s));
    float *dx = kernel_floats(inputs), *dw = kernel_floats(weights);
    float *workspace = workspace_for(&s), *other = workspace_for(&back);
    rpi_kernel_winograd_run(
        &run, &(rpi_kernel_winograd){
                  .shape = s, .x = x, .weight = w, .y = y, .workspace = workspace});
    rpi_kernel_winograd_run(
        &run,
        &(rpi_kernel_winograd){
            .shape = back, .x = dy, .weight = w, .turned = true, .y = dx, .workspace = other});
    rpi_kernel_winograd_weight_run(
        &run, &(rpi_kernel_winograd_weight){
                  .shape = s, .x = x, .dy = dy, .dw = dw, .workspace = workspace});
    double all = dot(y, dy, outputs(&s));
    CHECK_NEAR(dot(x, dx, inputs), all, 1e-4 * fabs(all) + 1e-2);
    CHECK_NEAR(dot(w, dw, weights), all, 1e-4 * fabs(all) + 1e-2);
    kernel_buffers_free();
}

/* What the header says of errors: their deviation in units of a sum's. */
static double error_of(const float *got, const float *wanted, int64_t count, int64_t terms) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += ((double)got[i] - (double)wanted[i]) * ((double)got[i] - (double)wanted[i]);
    return sqrt(sum / (double)count / (double)terms);
}

static void errors_are_as_stated(void) {
    const rpi_winograd_shape s = {2, 64, 64, 16, 16, 1};
    const int64_t count = outputs(&s), weights = 64 * 64 * 9;
    float *x = kernel_normal(count, 1, 1), *w = kernel_normal(weights, 1, 2);
    float *dy = kernel_normal(count, 1, 3), *workspace = workspace_for(&s);
    float *y[2], *dw[2];
    for (int i = 0; i < 2; i++) {
        rpi_kernel_run run = {1, i ? rpi_cpu_isa() : RPI_ISA_SCALAR};
        y[i] = kernel_floats(count);
        dw[i] = kernel_floats(weights);
        rpi_kernel_winograd_run(
            &run, &(rpi_kernel_winograd){
                      .shape = s, .x = x, .weight = w, .y = y[i], .workspace = workspace});
        rpi_kernel_winograd_weight_run(
            &run, &(rpi_kernel_winograd_weight){
                      .shape = s, .x = x, .dy = dy, .dw = dw[i], .workspace = workspace});
    }
    double forward = error_of(y[1], y[0], count, 9 * 64);
    double gradient = error_of(dw[1], dw[0], weights, 2 * 16 * 16);
    CHECK_MSG(forward < 3e-6, "errors of outputs: %.2g", forward);
    CHECK_MSG(gradient < 3e-6, "errors of gradients: %.2g", gradient);
    kernel_buffers_free();
}

CASES({"convolutions_match", convolutions_match},
      {"gradients_of_weights_match", gradients_of_weights_match},
      {"the_three_are_of_one_convolution", the_three_are_of_one_convolution},
      {"errors_are_as_stated", errors_are_as_stated})
