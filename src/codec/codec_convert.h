/* Between f32 and the two 16-bit floats, a run of elements at a time.
 *
 * Narrowing here saturates: a finite value never becomes an infinity, so that a gradient that
 * is a little too large for f16 does not poison the step. NaN and infinity stay what they are.
 * 16-bit elements may lie at any address (they come from the wire). */
#ifndef RPI_CODEC_CODEC_CONVERT_H
#define RPI_CODEC_CODEC_CONVERT_H

#include "base/cpu.h"
#include "redpoll/dtype.h"

enum { RPI_TILE = 1024 }; /* elements converted at a time: 4 KiB of floats stay in L1 */

typedef struct rpi_convert_kernels {
    void (*widen)(const void *x, size_t count, float *y);
    void (*widen_add)(const void *x, size_t count, float *sum);
    void (*narrow)(const float *x, size_t count, void *y);
} rpi_convert_kernels;

/* dtype: RP_F32 (copies), RP_F16 or RP_BF16. */
const rpi_convert_kernels *rpi_convert(rp_dtype dtype, rpi_isa isa);

/* Error feedback of codecs that treat each element alone: y = x + residual (x of type `data`)
 * is narrowed to `wire` into out, and the residual becomes what that lost; 0 where y is not
 * finite. */
void rpi_convert_feedback(rp_dtype data, rp_dtype wire, rpi_isa isa, const void *x,
                          size_t count, float *residual, void *out);

extern const rpi_convert_kernels rpi_convert_f16_scalar, rpi_convert_bf16_scalar;
#if defined(__x86_64__)
extern const rpi_convert_kernels rpi_convert_f16_avx2, rpi_convert_bf16_avx2;
#elif defined(__aarch64__)
extern const rpi_convert_kernels rpi_convert_f16_neon, rpi_convert_bf16_neon;
#endif

#endif
