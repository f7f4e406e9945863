/* Bits for each tensor of a model, so that bytes are least at the total error of one codec for
 * all: elements of large tensors that matter little travel with fewer bits, those that make the
 * error with more. Pure: ranks that hold the same numbers choose alike. */
#ifndef RPI_CODEC_BITS_CHOICE_H
#define RPI_CODEC_BITS_CHOICE_H

#include "redpoll/codec.h"

enum { RPI_BITS_MOST = 8 };

typedef struct rpi_bits_choice {
    size_t count; /* elements of the tensor */
    double
        lost[RPI_BITS_MOST + 1]; /* squared error with b bits, of all ranks; lost[0] unused */
    uint8_t bits;                /* what is chosen */
} rpi_bits_choice;

/* Add to lost[b] what `like` with b bits would lose of x + residual (NULL: of x), f32, for b
 * from 1 to 8: as often encoded and decoded. RP_INVALID: `like` has no bits to choose
 * (is not q1 to q8). RP_NOMEM. */
rp_status rpi_bits_measure(const rp_codec *like, const float *x, const float *residual,
                           size_t count, double lost[RPI_BITS_MOST + 1]);

/* Fill in `bits` of all tensors. Afterwards neither the sum of lost[bits] nor the bytes are
 * more than with like->bits for all. A tensor whose error is not finite (its gradient was not)
 * gets like->bits and counts for nothing. least: fewest bits of the others; 2 with error
 * feedback, under which one bit does not settle. O(tensors^2). */
void rpi_bits_choose(const rp_codec *like, int least, rpi_bits_choice *tensors, size_t count);

#endif
