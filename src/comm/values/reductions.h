/* How contributions are combined: `into = into op in`, for every reduction and dtype for which
 * it is defined. The mean and the scaled sum add here; their other steps are in values.h.
 *
 * A new reduction is a constant in <redpoll/comm.h>, a row with its names and dtypes in
 * reductions.c, and loops in reduction_loops.h. */
#ifndef RPI_COMM_REDUCTIONS_H
#define RPI_COMM_REDUCTIONS_H

#include "base/cpu.h"
#include "base/kernel_form.h"
#include "redpoll/comm.h"

#include <stdbool.h>

/* "sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul-sum"; "unknown". */
const char *rpi_reduction_name(rp_reduction reduction);
/* RP_SUM, RP_AVG and RP_PREMUL_SUM: these can be used with lossy codecs and error feedback. */
bool rpi_reduction_adds(rp_reduction reduction);
/* RP_INVALID: no reduction, or not defined for the dtype; RP_UNSUPPORTED: the codec is lossy
 * and the reduction is not a sum. The message says what is allowed. */
rp_status rpi_reduction_check(rp_reduction reduction, rp_dtype dtype, const rp_codec *codec);

/* Combine `count` elements of `dtype` at `in`, at any address, with accumulators at `into`,
 * which are of rpi_sum_dtype(dtype) (values.h). A NaN wins in RP_MIN and RP_MAX, integers wrap.
 * All instruction sets give the same bits. The reduction takes the dtype. */
void rpi_reduce(rp_reduction reduction, rpi_isa isa, rp_dtype dtype, const void *in,
                size_t count, void *into);

/* into = also = (first + second) * factor, elements of `dtype` at any address, reading memory
 * once; into and also (NULL: none) may be inputs, and otherwise overlap none. factor 1: the
 * sum. The bits are those of a sum that is then multiplied. is_long: part of more data than a
 * cache holds. False: the dtype has no such loop. */
bool rpi_add_two(rpi_isa isa, rp_dtype dtype, const void *first, const void *second,
                 double factor, size_t count, void *into, void *also, bool is_long);

/* How rpi_add_two() does it (reduction_kernels.h). */
extern rpi_kernel_form rpi_add_two_form;

#endif
