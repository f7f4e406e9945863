/* Arithmetic on arrays of values that neither codecs nor reductions do: conversions of
 * accumulators, the mean, and the factor of a scaled sum. */
#ifndef RPI_COMM_VALUES_H
#define RPI_COMM_VALUES_H

#include "base/cpu.h"
#include "redpoll/dtype.h"

/* f16 and bf16 are summed in f32, everything else in its own dtype. */
rp_dtype rpi_sum_dtype(rp_dtype dtype);
/* Between a dtype and its sum dtype, or a plain copy (of nothing when from is into). `from` may
 * lie at any address. Narrowing rounds to nearest even and overflows to infinity, so that
 * training with a loss scale sees it. */
void rpi_values_convert(const void *from, rp_dtype from_dtype, void *into, rp_dtype into_dtype,
                        size_t count);
/* True division by a whole number, in the precision of the accumulator; f32, f64 and complex.
 */
void rpi_values_divide(void *values, rp_dtype dtype, size_t count, int by);
/* Times `times`, and then divided by `over`, each rounded; zeros: unchanged. */
void rpi_values_weigh(void *values, rp_dtype dtype, int times, int over, size_t count);
/* into = from * factor, in f64 and rounded once to the dtype, which is of floats or complex
 * numbers; from may be into. */
void rpi_values_scale(const void *from, rp_dtype dtype, double factor, size_t count,
                      void *into);

/* The narrowing above with a given instruction set: f32 to RP_F16 or RP_BF16. */
typedef struct rpi_narrow_kernels {
    void (*f16)(const float *from, size_t count, uint16_t *into);
    void (*bf16)(const float *from, size_t count, uint16_t *into);
} rpi_narrow_kernels;
const rpi_narrow_kernels *rpi_narrow(rpi_isa isa);

#if defined(__x86_64__)
extern const rpi_narrow_kernels rpi_narrow_avx2;
#endif

#endif
