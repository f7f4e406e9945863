/* The serial answer: the result that a collective must have, computed by one rank alone,
 * element by element and in rank order, from inputs that are a pure function of (seed, rank,
 * index). It shares no code with the executor that it checks.
 *
 * Floats and complex numbers are Gaussian, those of 64 bits with a full mantissa, so that sums
 * round; integers are all bits of their width, so that sums overflow; bools are 0 or 1. */
#ifndef RPI_CLI_BENCH_SERIAL_H
#define RPI_CLI_BENCH_SERIAL_H

#include "redpoll/comm.h"

#include <stdbool.h>

/* One element of any dtype: `whole` for integers and bool, extended to 64 bits by their sign;
 * re and im for the others. */
typedef struct rpi_wide {
    double re, im;
    uint64_t whole;
} rpi_wide;

/* The distance of results from answers, as sums over elements: add those of all ranks before
 * you read it. For integers `difference` counts wrong elements and `answer` counts elements. */
typedef struct rpi_distance {
    double difference, answer; /* squares of the error and of the answer */
    double inputs;             /* squares of the summands: the scale if sums cancel */
} rpi_distance;

/* Finds by the name that rpi_reduction_name() gives; RP_INVALID suggests the nearest. */
rp_status rpi_reduce_parse(const char *text, rp_reduction *out_reduce);
/* For option tables. */
rp_status rpi_check_reduction(const char *text);

/* The value that a rank passes as rp_collective_options.factor. */
double rpi_serial_factor(int rank);

/* out[0 ... count): elements from `first` on of a rank's input. */
void rpi_serial_input(uint64_t seed, int rank, rp_dtype dtype, uint64_t first, size_t count,
                      void *out);
void rpi_serial_widen(rp_dtype dtype, const void *data, size_t count, rpi_wide *out);

/* The reduction: begins with the neutral element, adds the ranks in order, ends. */
void rpi_serial_begin(rp_reduction reduce, rp_dtype dtype, size_t count, rpi_wide *sum);
void rpi_serial_add(rp_reduction reduce, rp_dtype dtype, int rank, const rpi_wide *x,
                    size_t count, rpi_wide *sum);
void rpi_serial_end(rp_reduction reduce, int world, size_t count, rpi_wide *sum);

/* Compares results with answers, integers in the bits of their width. */
void rpi_serial_compare(rp_dtype dtype, const rpi_wide *result, const rpi_wide *answer,
                        size_t count, rpi_distance *distance);
/* Relative L2 error; 0 without elements. */
double rpi_distance_error(const rpi_distance *distance);
/* Is the error one that rounding explains in a sum of `terms`, where each term, and each
 * partial sum, loses at most the share `loss`? False for NaN. */
bool rpi_distance_is_within(const rpi_distance *distance, double loss, int terms);
/* The share of an element that rounding to dtype may lose; 0 for integers. */
double rpi_dtype_rounding(rp_dtype dtype);

#endif
