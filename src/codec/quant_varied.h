/* How v1 ... v8 give each run of elements bits of its own: what a run is like, how many bits it
 * gets, and where its levels lie. docs/codecs.md is normative for all of it. */
#ifndef RPI_CODEC_QUANT_VARIED_H
#define RPI_CODEC_QUANT_VARIED_H

#include "codec/codec.h"
#include "codec/quant_kernels.h"

#include <stdbool.h>

enum {
    RPI_VARIED_RUN = 256, /* elements that share a scale */
    RPI_VARIED_BITS = 8,  /* most of an element */
    RPI_VARIED_QUARTERS = 4,
    /* In the place of a run's bits. */
    RPI_VARIED_ZEROS = 0,
    RPI_VARIED_CONSTANT = 9,
    RPI_VARIED_DAMAGED = 255,
};

typedef struct rpi_varied_run {
    size_t count;
    float low, high;
    double mean, variance;
    bool damaged; /* holds NaN or infinity */
} rpi_varied_run;

/* residual: NULL, or added to x. */
rpi_varied_run rpi_varied_look(const rpi_quant_kernels *kernels, const float *x,
                               const float *residual, size_t count);
/* How much variance a bit more must take away from an element, in units of the mean variance of
 * the bucket. */
double rpi_varied_price(int bits, uint32_t quarters);
/* price: that, times the mean variance. 0: the run is flat, but for what does not pay. */
int rpi_varied_bits(const rpi_varied_run *run, double price, rp_rounding rounding);

/* How a run travels: with this many bits, or one of the marks above. */
typedef struct rpi_varied_way {
    int width;
    rpi_quant_scale scale; /* unit 0: all elements decode to min */
} rpi_varied_way;

/* bits: wanted. It is another width where the run is damaged, or has no levels to tell apart.
 */
rpi_varied_way rpi_varied_way_of(const rpi_varied_run *run, int bits, rp_rounding rounding);
/* What a run takes on the wire. */
size_t rpi_varied_bytes(size_t count, int width);

#endif
