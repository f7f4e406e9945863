/* How contributions are combined: `into = into op in`, for every reduction and dtype where that
 * is defined. The mean and the scaled sum add here; what else they do is in values.h.
 *
 * A new reduction is a constant in <redpoll/comm.h>, a row of names and of what it takes in
 * reductions.c, and loops in reduction_loops.h. */
#ifndef RPI_COMM_REDUCTIONS_H
#define RPI_COMM_REDUCTIONS_H

#include "base/cpu.h"
#include "base/kernel_form.h"
#include "redpoll/comm.h"

#include <stdbool.h>

/* "sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul-sum"; "unknown". */
const char *rpi_reduction_name(rp_reduction reduction);
/* RP_SUM, RP_AVG and RP_PREMUL_SUM: what lossy codecs and error feedback go with. */
bool rpi_reduction_adds(rp_reduction reduction);
/* RP_INVALID: no reduction, or not defined for the dtype; RP_UNSUPPORTED: the codec is lossy
 * and the reduction no sum. The message says what is allowed. */
rp_status rpi_reduction_check(rp_reduction reduction, rp_dtype dtype, const rp_codec *codec);

/* Combine `count` elements of `dtype` at `in`, at any address, with accumulators at `into`,
 * which are of rpi_sum_dtype(dtype) (values.h). A NaN wins in RP_MIN and RP_MAX, integers wrap.
 * All instruction sets give the same bits. The reduction takes the dtype. */
void rpi_reduce(rp_reduction reduction, rpi_isa isa, rp_dtype dtype, const void *in,
                size_t count, void *into);

/* into = also = (first + second) * factor, elements of `dtype` at any address, in one reading
 * of memory; into and also (NULL: nothing) may be inputs, and overlap none otherwise. factor 1:
 * the sum. The bits of a sum that is then multiplied. is_long: it is a part of what no cache
 * holds. False: the dtype has no such loop. */
bool rpi_add_two(rpi_isa isa, rp_dtype dtype, const void *first, const void *second,
                 double factor, size_t count, void *into, void *also, bool is_long);

/* How rpi_add_two() does it (reduction_kernels.h). */
extern rpi_kernel_form rpi_add_two_form;

#endif
