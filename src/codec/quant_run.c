#include "codec/quant_run.h"

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

const rpi_quant_kernels *rpi_quant_kernels_for(rpi_isa isa) {
    static const rpi_quant_kernels *const table[RPI_ISA_COUNT] = {
        [RPI_ISA_SCALAR] = &rpi_quant_scalar,
#if defined(__x86_64__)
        [RPI_ISA_AVX2] = &rpi_quant_avx2,
        [RPI_ISA_AVX512] = &rpi_quant_avx512,
#elif defined(__aarch64__)
        [RPI_ISA_NEON] = &rpi_quant_neon,
#endif
    };
    while (!table[isa]) isa--;
    return table[isa];
}

int rpi_quant_supports(const rp_codec *codec, rp_dtype dtype) {
    (void)codec;
    return dtype == RP_F32 || dtype == RP_F16 || dtype == RP_BF16;
}

int rpi_quant_is_exact(const rp_codec *codec, rp_dtype dtype) {
    (void)codec, (void)dtype;
    return 0;
}

/* ---- encode -------------------------------------------------------------------------- */

void rpi_quant_begin(rpi_quant_encoder *e, const rp_codec *codec, rpi_isa isa, rp_dtype dtype,
                     const void *x, size_t count, const rp_encode_context *context) {
    e->codec = codec;
    e->kernels = rpi_quant_kernels_for(isa);
    e->convert = dtype == RP_F32 ? NULL : rpi_convert(dtype, isa);
    e->x = x;
    e->count = count;
    e->residual = context->residual;
    e->first = context->first;
    e->window.first = 0;
    e->window.count = 0;
    e->held = e->held_count = 0;
    if (codec->rounding == RP_STOCHASTIC) e->window.stream = rpi_quant_stream_of(context);
}

/* Numbers of `count` elements from `element` on, drawn in advance for up to `remaining`. */
static const uint16_t *random_at(rpi_random_window *window, const rpi_quant_kernels *kernels,
                                 uint64_t element, size_t count, size_t remaining) {
    if (element < window->first || element + count > window->first + window->count) {
        window->first = element / RPI_RANDOM_BLOCK * RPI_RANDOM_BLOCK;
        size_t wanted = (size_t)(element - window->first) + least(remaining, RPI_TILE);
        window->count = (wanted + RPI_RANDOM_STEP - 1) / RPI_RANDOM_STEP * RPI_RANDOM_STEP;
        kernels->random(&window->stream, element / RPI_RANDOM_BLOCK,
                        window->count / RPI_RANDOM_BLOCK, window->bits);
    }
    return window->bits + (element - window->first);
}

const char *const rpi_quant_roundings[] = {"nearest", "stochastic", NULL};

const float *rpi_quant_floats_at(rpi_quant_encoder *e, size_t i, size_t count) {
    if (!e->convert) return (const float *)e->x + i;
    if (e->held != i || e->held_count != count) {
        e->convert->widen((const char *)e->x + 2 * i, count, e->tile);
        e->held = i;
        e->held_count = count;
    }
    return e->tile;
}

float *rpi_quant_residual_at(const rpi_quant_encoder *e, size_t i) {
    return e->residual ? e->residual + i : NULL;
}

void rpi_quant_settle_flat(rpi_quant_encoder *e, size_t begin, size_t count, float value) {
    if (!e->residual) return;
    for (size_t done = 0, n; done < count; done += n) {
        n = least(count - done, RPI_TILE);
        rpi_quant_settle(rpi_quant_floats_at(e, begin + done, n), e->residual + begin + done, n,
                         value);
    }
}

void rpi_quant_encode_levels(rpi_quant_encoder *e, size_t begin, size_t count, int bits,
                             rpi_quant_scale scale, uint8_t *out) {
    for (size_t done = 0, n; done < count; done += n) {
        size_t i = begin + done;
        n = least(count - done, RPI_TILE);
        const uint16_t *random = NULL;
        if (e->codec->rounding == RP_STOCHASTIC)
            random = random_at(&e->window, e->kernels, e->first + i, n, e->count - i);
        e->kernels->quantise(&(rpi_quant_run){
            .x = rpi_quant_floats_at(e, i, n),
            .residual = rpi_quant_residual_at(e, i),
            .random = random,
            .count = n,
            .bits = bits,
            .scale = scale,
            .out = out + rpi_packed_bytes(done, bits),
        });
    }
}

/* ---- decode -------------------------------------------------------------------------- */

void rpi_quant_decode_levels(const rpi_quant_kernels *kernels,
                             const rpi_convert_kernels *convert, const uint8_t *in, int bits,
                             rpi_quant_scale scale, size_t count, void *y) {
    if (!convert) {
        kernels->dequantise(in, bits, scale, count, y);
        return;
    }
    for (size_t done = 0, n; done < count; done += n) {
        float tile[RPI_TILE];
        n = least(count - done, RPI_TILE);
        kernels->dequantise(in + rpi_packed_bytes(done, bits), bits, scale, n, tile);
        convert->narrow(tile, n, (char *)y + 2 * done);
    }
}
