/* The loops that combine arrays, as tables by dtype: one for each instruction set. */
#ifndef RPI_COMM_REDUCTION_KERNELS_H
#define RPI_COMM_REDUCTION_KERNELS_H

#include "redpoll/comm.h"

#include <stddef.h>

typedef void rpi_reduce_loop(const void *in, size_t count, void *into);

/* Of rpi_add_two(). */
enum { RPI_ADD_TWO_FETCHES, RPI_ADD_TWO_PLAIN, RPI_ADD_TWO_FETCHES_ALSO };
typedef void rpi_add_two_loop(const void *first, const void *second, double factor,
                              size_t count, void *into, void *also, int form);

/* Loops over accumulators, by dtype; NULL where the dtype has none of its own. */
enum { RPI_DTYPES = RP_C128 + 1 };
typedef struct rpi_reduce_loops {
    rpi_reduce_loop *product[RPI_DTYPES], *min[RPI_DTYPES], *max[RPI_DTYPES];
    rpi_reduce_loop *band, *bor, *bxor; /* over bytes */
    rpi_add_two_loop *add_two[RPI_DTYPES];
} rpi_reduce_loops;

#if defined(__x86_64__)
extern const rpi_reduce_loops rpi_reduce_loops_avx2;
#endif

#endif
