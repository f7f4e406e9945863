/* v1 to v8: what a run of elements is like, how many bits it gets and where its levels lie, for
 * the CPU and for kernels of a GPU. Elements of a bucket that are spread more widely get more
 * bits, as reverse water-filling asks (Cover and Thomas, chapter 10), and levels lie as close
 * as the error of normally distributed elements is least (Max, "Quantizing for Minimum
 * Distortion", 1960) unless outliers say otherwise. docs/codecs.md is normative. */
#ifndef RPI_CODEC_VARIED_ARITHMETIC_H
#define RPI_CODEC_VARIED_ARITHMETIC_H

#include "codec/quant_arithmetic.h"

#include <math.h>

enum {
    RPI_VARIED_RUN = 256, /* elements that share a scale */
    RPI_VARIED_BITS = 8,  /* most of an element */
    RPI_VARIED_QUARTERS = 4,
    RPI_VARIED_BUCKET_MAX = 65536,
    RPI_VARIED_RUNS_MAX = RPI_VARIED_BUCKET_MAX / RPI_VARIED_RUN,
    /* In the place of a run's bits. */
    RPI_VARIED_ZEROS = 0,
    RPI_VARIED_CONSTANT = 9,
    RPI_VARIED_DAMAGED = 255,
    /* Bytes of a run: its bits or mark, the minimum, the upper half of the unit; then levels.
     */
    RPI_VARIED_MIN = 1,
    RPI_VARIED_UNIT = 5,
    RPI_VARIED_HEAD = 7,
};

typedef struct rpi_varied_run {
    size_t count;
    float low, high;
    double mean, variance;
    int damaged; /* holds NaN or infinity */
} rpi_varied_run;

/* How a run travels: with this many bits, or one of the marks above. */
typedef struct rpi_varied_way {
    int width;
    rpi_quant_scale scale; /* unit 0: all elements decode to min */
} rpi_varied_way;

/* ---- tables ---- */

/* Of elements of variance 1: by how much bit number `bit`, 1 to 9, lowers the error. */
RPI_HOST_DEVICE double rpi_varied_gain(int bit) {
    const double gain[RPI_VARIED_BITS + 1] = {0.6366,   0.2446,   0.08136,   0.0259,  0.00805,
                                              0.002454, 0.000737, 0.0002163, 0.000062};
    return gain[bit - 1];
}

/* Distance of their levels, of 1 to 8 bits. */
RPI_HOST_DEVICE double rpi_varied_spacing(int bits) {
    const double spacing[RPI_VARIED_BITS] = {1.596,  0.9957, 0.586,  0.3352,
                                             0.1881, 0.1041, 0.0569, 0.0308};
    return spacing[bits - 1];
}

/* ---- looking ---- */

/* What the range says; the moments are still to come, of y - shift. */
RPI_HOST_DEVICE rpi_varied_run rpi_varied_begin(size_t count, const rpi_quant_range *range) {
    rpi_varied_run run;
    run.count = count;
    run.low = range->min + 0.0f; /* turns -0 into 0, whose order in a minimum is undefined */
    run.high = range->max + 0.0f;
    run.damaged =
        range->has_nan || !rpi_float_is_finite(run.low) || !rpi_float_is_finite(run.high);
    run.mean = run.variance = 0;
    return run;
}

RPI_HOST_DEVICE double rpi_varied_shift(const rpi_varied_run *run) {
    return (double)run->low + ((double)run->high - (double)run->low) / 2;
}

/* sum, squares: of y - shift. */
RPI_HOST_DEVICE void rpi_varied_take_moments(rpi_varied_run *run, double sum, double squares) {
    double mean = sum / (double)run->count;
    double variance = squares / (double)run->count - mean * mean;
    run->mean = rpi_varied_shift(run) + mean;
    run->variance = variance > 0 ? variance : 0;
}

/* ---- bits ---- */

/* How much variance a bit more must take away from an element, in units of the mean variance of
 * the bucket. */
RPI_HOST_DEVICE double rpi_varied_price(int bits, uint32_t quarters) {
    double part = (2 * (double)quarters + 1) / (2 * RPI_VARIED_QUARTERS);
    return rpi_varied_gain(bits) * (1 - part) + rpi_varied_gain(bits + 1) * part;
}

/* price: that, times the mean variance. 0: the run is flat, but for what does not pay. Two bits
 * at least where rounding is stochastic: one may miss by the whole range. */
RPI_HOST_DEVICE int rpi_varied_bits(const rpi_varied_run *run, double price, int stochastic) {
    int bits = 0;
    if (run->low >= run->high) return 0;
    while (bits < RPI_VARIED_BITS && run->variance * rpi_varied_gain(bits + 1) >= price) bits++;
    return stochastic && bits < 2 ? 2 : bits;
}

/* ---- levels ---- */

/* The next number up of which 16 bits are enough. */
RPI_HOST_DEVICE float rpi_varied_round_up(double unit) {
    return rpi_float_of_bits((rpi_float_bits((float)unit) + 0xffffu) & 0xffff0000u);
}

/* Where levels begin that lie around the mean, within what there is. */
RPI_HOST_DEVICE double rpi_varied_first_level(const rpi_varied_run *run, double unit,
                                              double top) {
    double low = run->mean - unit * top / 2, last = (double)run->high - unit * top;
    if (low > last) low = last;
    return low > (double)run->low ? low : (double)run->low;
}

/* The elements without the one that lies farthest out: a single large one may make up nearly
 * all of the variance. */
typedef struct rpi_varied_body {
    double mean, variance;
} rpi_varied_body;

RPI_HOST_DEVICE rpi_varied_body rpi_varied_body_of(const rpi_varied_run *run) {
    double above = (double)run->high - run->mean, below = run->mean - (double)run->low;
    double far = above > below ? above : -below, rest = (double)run->count - 1;
    double shift = far / rest;
    double variance = ((double)run->count * run->variance - far * far) / rest - shift * shift;
    rpi_varied_body body;
    body.mean = run->mean - shift;
    body.variance = variance > 0 ? variance : 0;
    return body;
}

/* How far the body's mean lies from the nearest level. */
RPI_HOST_DEVICE double rpi_varied_miss(double mean, double low, double unit, double top) {
    double level = floor((mean - low) / unit + 0.5);
    if (level < 0) level = 0;
    if (level > top) level = top;
    return mean - (low + unit * level);
}

/* What rounding the body loses, and how far the two outermost elements lie beyond the levels.
 */
RPI_HOST_DEVICE double rpi_varied_error(const rpi_varied_run *run, rpi_varied_body body,
                                        double unit, double top) {
    double low = rpi_varied_first_level(run, unit, top), high = low + unit * top;
    double below = low - (double)run->low, above = (double)run->high - high;
    double miss = rpi_varied_miss(body.mean, low, unit, top);
    double error = body.variance + miss * miss;
    if (error > unit * unit / 12) error = unit * unit / 12;
    error *= (double)run->count;
    if (below > 0) error += below * below;
    if (above > 0) error += above * above;
    return error;
}

/* From the distance that suits a normal distribution to the one that reaches every element. */
RPI_HOST_DEVICE double rpi_varied_best_unit(const rpi_varied_run *run, int bits, double top) {
    const int steps = 3;
    double widest = ((double)run->high - (double)run->low) / top;
    double narrowest = rpi_varied_spacing(bits) * sqrt(run->variance);
    if (narrowest >= widest) return widest;
    rpi_varied_body body = rpi_varied_body_of(run);
    double best = narrowest, least_error = rpi_varied_error(run, body, narrowest, top);
    for (int i = 1; i <= steps; i++) {
        double unit = narrowest + (widest - narrowest) * ((double)i / steps);
        double error = rpi_varied_error(run, body, unit, top);
        if (error >= least_error) continue;
        least_error = error;
        best = unit;
    }
    return best;
}

/* Stochastic rounding is right on average only where no element lies beyond the levels. */
RPI_HOST_DEVICE rpi_quant_scale rpi_varied_scale(const rpi_varied_run *run, int bits,
                                                 int stochastic) {
    double top = (double)((1 << bits) - 1);
    double unit = stochastic ? ((double)run->high - (double)run->low) / top
                             : rpi_varied_best_unit(run, bits, top);
    rpi_quant_scale scale;
    scale.unit = rpi_varied_round_up(unit);
    scale.min = (float)rpi_varied_first_level(run, (double)scale.unit, top);
    if (rpi_float_is_finite(scale.min + scale.unit * (float)top)) return scale;
    return rpi_quant_damaged_scale();
}

/* bits: wanted. It is another width where the run is damaged, or has no levels to tell apart.
 */
RPI_HOST_DEVICE rpi_varied_way rpi_varied_way_of(const rpi_varied_run *run, int bits,
                                                 int stochastic) {
    rpi_varied_way way;
    way.width = RPI_VARIED_DAMAGED;
    way.scale = rpi_quant_damaged_scale();
    if (run->damaged) return way;
    way.scale.min = way.scale.unit = 0;
    if (bits && run->low < run->high) way.scale = rpi_varied_scale(run, bits, stochastic);
    if (way.scale.min != way.scale.min) return way;
    way.width = bits;
    if (way.scale.unit > 0) return way;
    way.width = RPI_VARIED_ZEROS;
    way.scale.min = way.scale.unit = 0;
    if (run->mean * run->mean <= run->variance || run->mean == 0) return way;
    way.width = RPI_VARIED_CONSTANT;
    way.scale.min = (float)run->mean;
    return way;
}

/* ---- bytes ---- */

RPI_HOST_DEVICE int rpi_varied_has_levels(int width) {
    return width >= 1 && width <= RPI_VARIED_BITS;
}

/* What a run takes on the wire. */
RPI_HOST_DEVICE size_t rpi_varied_bytes(size_t count, int width) {
    if (rpi_varied_has_levels(width)) return RPI_VARIED_HEAD + rpi_packed_bytes(count, width);
    return width == RPI_VARIED_CONSTANT ? RPI_VARIED_UNIT : RPI_VARIED_MIN;
}

/* Of a run in a bucket of a codec of so many bits, where the first way to share out bits comes
 * to too many. A bit more than `bits` is never reached on average: the variance that a width
 * asks for grows faster than the width, and all have their mean to share. */
RPI_HOST_DEVICE int rpi_varied_most_bits(int bits) {
    return bits < RPI_VARIED_BITS ? bits + 1 : RPI_VARIED_BITS;
}

/* Of a bucket, at most. */
RPI_HOST_DEVICE size_t rpi_varied_most_bytes(int bits, size_t count) {
    size_t runs = (count + RPI_VARIED_RUN - 1) / RPI_VARIED_RUN;
    return runs * RPI_VARIED_HEAD + rpi_packed_bytes(count, rpi_varied_most_bits(bits));
}

#endif
