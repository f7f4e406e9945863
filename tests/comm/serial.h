/* What a reduction must give, computed one element at a time and in rank order. */
#ifndef COMM_SERIAL_H
#define COMM_SERIAL_H

#include "redpoll/comm.h"

#include <stdbool.h>
#include <stdint.h>

/* How a rank's input is made. */
typedef enum serial_input {
    SERIAL_ANY,   /* normal floats with a few NaNs, integers of all bits */
    SERIAL_SMALL, /* every order of adding and multiplying gives the same, in every dtype */
} serial_input;

bool serial_takes(rp_reduction reduction, rp_dtype dtype); /* as <redpoll/comm.h> says */
void serial_fill(serial_input kind, rp_dtype dtype, uint64_t seed, int rank, void *data,
                 size_t count);
/* What options->factor is in these tests. */
double serial_factor(int rank);
/* out[i] = inputs[0][i] op ... op inputs[world - 1][i]. */
void serial_reduce(rp_reduction reduction, rp_dtype dtype, void *const *inputs, int world,
                   size_t count, void *out);
/* The first element that differs, NaNs being equal (and zeros of both signs); `count`: none. */
size_t serial_differs(rp_dtype dtype, const void *a, const void *b, size_t count);

#endif
