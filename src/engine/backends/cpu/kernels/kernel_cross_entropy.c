#include "engine/backends/cpu/kernels/kernel_cross_entropy.h"

#include <math.h>
#include <string.h>

/* The first of the largest of the first `count`; NaN is never the largest. */
static int64_t largest(rpi_kernel_rows logits, int64_t row, int64_t count) {
    int64_t best = 0;
    double most = -INFINITY;
    for (int64_t j = 0; j < count; j++) {
        double x = rpi_kernel_get(logits, row, j);
        if (x > most) most = x, best = j;
    }
    return best;
}

static void zero_row(const rpi_kernel_cross_entropy *it, int64_t row, float loss) {
    it->losses[row] = loss;
    it->correct[row] = 0;
    if (!it->dlogits.data) return;
    for (int64_t j = 0; j < it->classes; j++) rpi_kernel_put(it->dlogits, row, j, 0);
}

static void one_row(const rpi_kernel_cross_entropy *it, int64_t row) {
    int64_t best = largest(it->logits, row, it->classes), label = it->labels[row];
    double most = rpi_kernel_get(it->logits, row, best), sum = 0, shifted = 0;
    for (int64_t j = 0; j < it->classes; j++) {
        double x = rpi_kernel_get(it->logits, row, j) - most;
        sum += exp(x);
        shifted += x;
    }
    double smooth = it->smoothing, each = smooth / (double)it->classes;
    double own = rpi_kernel_get(it->logits, row, label) - most;
    double loss = log(sum) - (1 - smooth) * own;
    if (smooth > 0) loss -= each * shifted;
    it->losses[row] = (float)loss;
    it->correct[row] = best == label;
    if (!it->dlogits.data) return;
    for (int64_t j = 0; j < it->classes; j++) {
        double p = exp(rpi_kernel_get(it->logits, row, j) - most) / sum;
        double q = (j == label ? 1 - smooth : 0) + each;
        rpi_kernel_put(it->dlogits, row, j, it->scale * (p - q));
    }
}

void rpi_cross_entropy_scalar(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_cross_entropy *it = args;
    for (int64_t row = begin; row < end; row++) {
        int64_t label = it->labels[row];
        if (label == it->ignored)
            zero_row(it, row, 0);
        else if (label < 0 || label >= it->classes)
            zero_row(it, row, NAN);
        else
            one_row(it, row);
    }
}

rpi_cross_entropy_totals rpi_kernel_cross_entropy_run(const rpi_kernel_run *run,
                                                      const rpi_kernel_cross_entropy *it) {
    static const rpi_kernel_body bodies[] = RPI_KERNEL_BODIES(cross_entropy);
    rpi_kernel_parallel(run, it->rows, 1, bodies, it);
    rpi_cross_entropy_totals totals = {.bad_row = -1};
    for (int64_t row = 0; row < it->rows; row++) {
        int64_t label = it->labels[row];
        if (label == it->ignored) continue;
        if ((label < 0 || label >= it->classes) && totals.bad_row < 0) totals.bad_row = row;
        totals.loss += it->losses[row];
        totals.valid++;
        totals.correct += it->correct[row] && it->losses[row] == it->losses[row];
    }
    return totals;
}

/* ---- of a slice of the classes ---- */

static void describe_row(const rpi_kernel_statistics *it, int64_t row, float *out) {
    int64_t classes = rpi_statistics_classes(it), label = it->labels[row] - it->first;
    int64_t best = largest(it->logits, row, classes);
    double most = classes ? rpi_kernel_get(it->logits, row, best) : -INFINITY, sum = 0, all = 0;
    double shift = most > -INFINITY ? most : 0;
    for (int64_t j = 0; j < classes; j++) {
        double x = rpi_kernel_get(it->logits, row, j);
        sum += exp(x - shift);
        all += x;
    }
    out[RPI_STATISTICS_LSE] = (float)(shift + log(sum));
    out[RPI_STATISTICS_LABEL] =
        label >= 0 && label < classes ? rpi_kernel_get(it->logits, row, label) : 0;
    out[RPI_STATISTICS_SUM] = (float)all;
    out[RPI_STATISTICS_LARGEST] = (float)most;
    out[RPI_STATISTICS_INDEX] = (float)(it->first + best);
}

static void differentiate_row(const rpi_kernel_statistics *it, int64_t row, const float *of,
                              const float *gradient) {
    int64_t classes = rpi_statistics_classes(it), label = it->labels[row] - it->first;
    int64_t best = (int64_t)of[RPI_STATISTICS_INDEX] - it->first;
    double lse = of[RPI_STATISTICS_LSE];
    for (int64_t j = 0; j < it->classes; j++) {
        double p = lse == -INFINITY ? 0 : exp(rpi_kernel_get(it->logits, row, j) - lse);
        double dx = p * gradient[RPI_STATISTICS_LSE] + gradient[RPI_STATISTICS_SUM];
        if (j == label) dx += gradient[RPI_STATISTICS_LABEL];
        if (j == best) dx += gradient[RPI_STATISTICS_LARGEST];
        rpi_kernel_put(it->dlogits, row, j, j < classes ? dx : 0);
    }
}

void rpi_statistics_scalar(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_statistics *it = args;
    static const float none[RPI_STATISTICS];
    for (int64_t row = begin; row < end; row++) {
        float *of = it->statistics + row * RPI_STATISTICS;
        bool ignored = it->labels[row] == it->ignored;
        if (it->gradients)
            differentiate_row(it, row, of,
                              ignored ? none : it->gradients + row * RPI_STATISTICS);
        else if (ignored)
            memset(of, 0, sizeof none);
        else
            describe_row(it, row, of);
    }
}

void rpi_kernel_statistics_run(const rpi_kernel_run *run, const rpi_kernel_statistics *it) {
    static const rpi_kernel_body bodies[] = RPI_KERNEL_BODIES(statistics);
    rpi_kernel_parallel(run, it->rows, 1, bodies, it);
}
