/* Does the outer momentum fit the number of local steps? Where successive pseudo-gradients
 * point the same way (few local steps), momentum adds them up and an outer step goes much
 * further than the ranks have been; where they turn back, outer steps overshoot. With an
 * autocorrelation of r from one to the next, and r^k over k, what momentum m adds up to is
 * 1 / (1 - m r). */
#ifndef RPI_PLAN_MOMENTUM_WATCH_H
#define RPI_PLAN_MOMENTUM_WATCH_H

#include "redpoll/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- the autocorrelation, from few elements ---- */

typedef struct rpi_sample_products {
    double now, before, both; /* squares, and the product, of samples */
} rpi_sample_products;

/* Every so many elements of `count` one is a sample: at most 65536 of them. */
size_t rpi_sample_stride(size_t count);
static inline size_t rpi_sample_count(size_t count, size_t stride) {
    return (count + stride - 1) / stride;
}
/* Adds the samples of a gradient (f32, f64). samples: [rpi_sample_count()] those of the one
 * before, and then this one's. */
void rpi_sample_gradient(rp_dtype dtype, const void *gradient, size_t count, size_t stride,
                         float *samples, rpi_sample_products *sums);
/* The cosine; NaN where one of the two has no length. */
double rpi_sample_cosine(const rpi_sample_products *sums);

/* ---- what follows from it ---- */

typedef struct rpi_momentum_watch {
    double rate, momentum; /* of the outer optimizer */
    double mean;           /* of autocorrelations, the latest count most */
    int known;             /* so many of them */
    bool has_warned;
    char warning[320];
} rpi_momentum_watch;

/* Of another exchange; NaN: not known. What the user should know, once; NULL: nothing. */
const char *rpi_momentum_watch_take(rpi_momentum_watch *watch, double autocorrelation,
                                    uint64_t local_steps);

#endif
