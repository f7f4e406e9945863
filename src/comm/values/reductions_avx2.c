/* The loops of reductions with AVX2: SSE2 has neither minima and maxima of most integers nor
 * products of 32 bits. */
#include "comm/values/reduction_loops.h"

const rpi_reduce_loops rpi_reduce_loops_avx2 = REDUCE_LOOPS;
