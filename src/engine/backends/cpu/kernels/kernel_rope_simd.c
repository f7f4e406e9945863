#include "engine/backends/cpu/kernels/kernel_rope.h"

#include "engine/backends/cpu/kernels/simd.h"

SIMD void rotate(const rpi_kernel_rope *it, simd_row x, simd_row y, int64_t position) {
    int64_t half = it->rotary / 2;
    const float *cosines = it->cosines + position * half, *sines = it->sines + position * half;
    EACH_VECTOR(c, live, half) {
        vf cosine = vf_load_n(cosines + c, live), sine = vf_load_n(sines + c, live);
        vf low = row_load(x, c, live), high = row_load(x, half + c, live);
        if (it->inverse) sine = vf_neg(sine);
        row_store(y, c, vf_fnma(high, sine, vf_mul(low, cosine)), live);
        row_store(y, half + c, vf_fma(low, sine, vf_mul(high, cosine)), live);
    }
    EACH_VECTOR(c, live, it->head_size - it->rotary)
    row_store(y, it->rotary + c, row_load(x, it->rotary + c, live), live);
}

/* Units are tokens. */
RPI_SIMD_BODY(rope)(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_rope *it = args;
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t b = unit / it->length, t = unit % it->length;
        for (int64_t h = 0; h < it->heads; h++)
            rotate(it, head_at(it->x, b, t, h).start, head_at(it->y, b, t, h).start,
                   rpi_rope_position(it, unit));
    }
}
