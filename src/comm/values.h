/* Arithmetic on arrays of values that no codec does: conversions of accumulators, the mean. */
#ifndef RPI_COMM_VALUES_H
#define RPI_COMM_VALUES_H

#include "redpoll/dtype.h"

/* f16 and bf16 are summed in f32, everything else in its own dtype. */
rp_dtype rpi_sum_dtype(rp_dtype dtype);
/* Between a dtype and its sum dtype, or a plain copy (of nothing when from is into). Narrowing
 * rounds to nearest even and overflows to infinity, so that training with a loss scale sees it.
 */
void rpi_values_convert(const void *from, rp_dtype from_dtype, void *into, rp_dtype into_dtype,
                        size_t count);
/* True division by the world, in the precision of the accumulator; f32 and f64 only. */
void rpi_values_divide(void *values, rp_dtype dtype, size_t count, int world);

#endif
