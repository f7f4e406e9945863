#include "kernels.h"

#include "engine/backends/cpu/kernels/kernel_winograd.h"

static void convolve(const rpi_kernel_run *run, const void *args) {
    rpi_kernel_winograd_run(run, args);
}

static void differentiate(const rpi_kernel_run *run, const void *args) {
    rpi_kernel_winograd_weight_run(run, args);
}

/* Operations are counted as for direct sums. */
static void add(bench_list *list, const char *name, const char *gradient_name, int64_t images,
                int64_t channels, int64_t side) {
    const rpi_winograd_shape s = {images, channels, channels, side, side, 1};
    int64_t pixels = images * channels * side * side, weights = channels * channels * 9;
    float *workspace =
        bench_floats((int64_t)(rpi_kernel_winograd_workspace(&s) / sizeof(float)));
    rpi_kernel_winograd it = {.shape = s,
                              .x = bench_floats(pixels),
                              .weight = bench_floats(weights),
                              .y = bench_floats(pixels),
                              .workspace = workspace};
    rpi_kernel_winograd_weight gradient = {
        .shape = s, .x = it.x, .dy = it.y, .dw = bench_floats(weights), .workspace = workspace};
    double flops = 18.0 * (double)pixels * (double)channels;
    bench_add(list, (bench_kernel){name, convolve, bench_copy(&it, sizeof it), 0, flops});
    bench_add(list, (bench_kernel){gradient_name, differentiate,
                                   bench_copy(&gradient, sizeof gradient), 0, flops});
}

void bench_winograd(bench_list *list) {
    add(list, "winograd 64x64x28x28", "winograd 64x64x28x28 weight", 64, 64, 28);
    add(list, "winograd 64x128x14x14", "winograd 64x128x14x14 weight", 64, 128, 14);
    add(list, "winograd 64x256x7x7", "winograd 64x256x7x7 weight", 64, 256, 7);
    add(list, "winograd 64x512x4x4", "winograd 64x512x4x4 weight", 64, 512, 4);
    add(list, "winograd 16x64x56x56", "winograd 16x64x56x56 weight", 16, 64, 56);
    add(list, "winograd 16x128x28x28", "winograd 16x128x28x28 weight", 16, 128, 28);
    add(list, "winograd 16x256x14x14", "winograd 16x256x14x14 weight", 16, 256, 14);
    add(list, "winograd 16x512x7x7", "winograd 16x512x7x7 weight", 16, 512, 7);
    add(list, "winograd 8x256x14x14", "winograd 8x256x14x14 weight", 8, 256, 14);
    add(list, "winograd 8x512x7x7", "winograd 8x512x7x7 weight", 8, 512, 7);
    add(list, "winograd 2x128x112x112", "winograd 2x128x112x112 weight", 2, 128, 112);
}
