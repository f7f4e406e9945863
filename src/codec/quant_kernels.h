/* The arithmetic of the max-min quantiser on floats, one table of kernels an instruction set.
 * docs/codecs.md is normative; quant_scalar.c is its plain form, and every other table gives
 * the same bytes. A table for another instruction set is one more file and one row in quant.c.
 *
 * A run is a piece of one bucket that starts at a multiple of 8 elements, so that its packed
 * levels start at a byte. */
#ifndef RPI_CODEC_QUANT_KERNELS_H
#define RPI_CODEC_QUANT_KERNELS_H

#include "base/cpu.h"
#include "base/kernel_form.h"
#include "codec/quant_arithmetic.h"
#include "redpoll/codec.h"
#include "redpoll/rng.h"

#include <stddef.h>

typedef struct rpi_quant_run {
    const float *x;
    float *residual;        /* NULL: no error feedback */
    const uint16_t *random; /* NULL: to nearest; else one number an element */
    size_t count;
    int bits;
    rpi_quant_scale scale; /* unit > 0 */
    uint8_t *out;          /* ceil(count * bits / 8) bytes */
} rpi_quant_run;

/* Forms of the kernel that does many buckets, both or none of: it asks memory for what comes
 * (gains 40 % on one processor out of memory, halves the rate of another); it looks for the
 * range of a bucket before the levels of the one before it. Residuals are written with neither.
 */
enum { RPI_QUANT_FETCHES = 1, RPI_QUANT_RANGES_FIRST = 2 };
extern rpi_kernel_form rpi_quant_form;

/* Buckets one after the other, each its scale and its levels, rounded to nearest. */
typedef struct rpi_quant_buckets {
    const float *x;
    float *residual; /* NULL: no error feedback */
    size_t count, bucket;
    int bits;
    int form; /* the same bytes with each */
    uint8_t *out;
} rpi_quant_buckets;

/* The residuals of elements that all decode to `value`; 0 where that is NaN. */
static inline void rpi_quant_settle(const float *x, float *residual, size_t count,
                                    float value) {
    for (size_t i = 0; i < count; i++)
        residual[i] = value != value ? 0.0f : x[i] + residual[i] - value;
}

/* One block of Philox turns the names of an encoding into the key and half the counter of its
 * own stream; as Philox is a bijection, no two encodings of a run share a block. */
static inline rpi_quant_stream rpi_quant_stream_of(const rp_encode_context *context) {
    uint32_t counter[4] = {(uint32_t)context->step, (uint32_t)(context->step >> 32),
                           context->tensor, context->role};
    uint32_t key[2] = {(uint32_t)context->seed, (uint32_t)(context->seed >> 32)};
    uint32_t words[4];
    rp_philox4x32(counter, key, words);
    return (rpi_quant_stream){{words[0], words[1]}, {words[2], words[3]}};
}

enum { RPI_RANDOM_BLOCKS = 8, RPI_MOMENT_LANES = 16 };

/* Lane l and l + 8, then l + 4, l + 2, l + 1. Overwrites the lanes. */
static inline double rpi_moment_fold(double lane[RPI_MOMENT_LANES]) {
    for (int half = RPI_MOMENT_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) lane[l] += lane[l + half];
    return lane[0];
}

/* Elements from i on, the last ones of `count`, whose first one is in lane 0. */
static inline void rpi_moment_rest(const float *x, const float *residual, size_t i,
                                   size_t count, double shift,
                                   double lane[2][RPI_MOMENT_LANES]) {
    for (size_t k = 0; i + k < count; k++) {
        float y = residual ? x[i + k] + residual[i + k] : x[i + k];
        double d = (double)y - shift;
        lane[0][k] += d;
        lane[1][k] += d * d;
    }
}

typedef struct rpi_quant_kernels {
    /* Widen *range by x, or by x + residual where there is one. */
    void (*range)(const float *x, const float *residual, size_t count, rpi_quant_range *range);
    /* Sums of y - shift and of its square, y as above, in binary64. Element i belongs to lane
     * i mod RPI_MOMENT_LANES; each lane is summed in order, rpi_moment_fold() adds the lanes.
     */
    void (*moments)(const float *x, const float *residual, size_t count, double shift,
                    double out[2]);
    /* Levels, at least 0 and at most 2^bits - 1, into out; (x + residual) - decoded into
     * residual. */
    void (*quantise)(const rpi_quant_run *run);
    /* NULL: range() and quantise() do it bucket by bucket. */
    void (*quantise_buckets)(const rpi_quant_buckets *all);
    /* y[i] = min + unit * level; reads exactly ceil(count * bits / 8) bytes of in. */
    void (*dequantise)(const uint8_t *in, int bits, rpi_quant_scale scale, size_t count,
                       float *y);
    /* sum[i] = base[i] + the same; base may be sum. */
    void (*dequantise_sum)(const uint8_t *in, int bits, rpi_quant_scale scale, size_t count,
                           const float *base, float *sum);
    /* 8 numbers a block; `blocks` is a multiple of RPI_RANDOM_BLOCKS. */
    void (*random)(const rpi_quant_stream *stream, uint64_t block, size_t blocks,
                   uint16_t *out);
} rpi_quant_kernels;

extern const rpi_quant_kernels rpi_quant_scalar;
#if defined(__x86_64__)
extern const rpi_quant_kernels rpi_quant_avx2, rpi_quant_avx512;
#elif defined(__aarch64__)
extern const rpi_quant_kernels rpi_quant_neon;
#endif

#endif
