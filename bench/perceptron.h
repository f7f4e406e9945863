/* A perceptron with one hidden layer in plain loops, for benchmarks in which learning must be
 * real and computing next to nothing. */
#ifndef BENCH_PERCEPTRON_H
#define BENCH_PERCEPTRON_H

#include "train/data/dataset.h"

#include <stddef.h>
#include <stdint.h>

typedef struct perceptron {
    int inputs, hidden, classes;
} perceptron;

/* Elements of all parameters: hidden x inputs, hidden, classes x hidden, classes. */
size_t perceptron_count(const perceptron *it);
/* The same on every rank. */
void perceptron_begin(const perceptron *it, uint64_t seed, float *x);
/* gradient += factor times that of these images' summed loss at x. */
void perceptron_gradient(const perceptron *it, const float *x, const float *images,
                         const int32_t *labels, int64_t count, float factor, float *gradient);
/* Share of the dataset's test images that are told right. */
rp_status perceptron_accuracy(const perceptron *it, const float *x, const rpi_dataset *data,
                              double *out_share);

#endif
