#include "plan/foresight/forecast_errors.h"

#include "base/median.h"
#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The time of a step at a rate of 1 operation a second and rank. */
static double work_s(const rpi_measured_row *row) {
    const rpi_training_layout *l = &row->layout;
    double tokens = (double)l->global_batch * (double)l->sequence;
    rpi_step_flops f = rpi_transformer_step_flops(&l->model, tokens, l->sequence, l->recompute);
    return f.hardware / (double)rpi_layout_ranks(l);
}

/* Uses the median rate. */
static double constant_mean(const rpi_measured_row *rows, int count, double *space) {
    double mean = 0;
    for (int i = 0; i < count; i++) space[i] = work_s(&rows[i]) / rows[i].step_s;
    double rate = rpi_median(space, count);
    for (int i = 0; i < count; i++)
        mean += fabs(work_s(&rows[i]) / rate / rows[i].step_s - 1) / count;
    return mean;
}

static double order(const rpi_measured_row *rows, const rpi_forecast *f, int count) {
    double kept = 0, pairs = 0;
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++) {
            double sign = (rows[i].step_s - rows[j].step_s) * (f[i].step_s - f[j].step_s);
            kept += (sign > 0) - (sign < 0);
            pairs++;
        }
    return pairs > 0 ? kept / pairs : 1;
}

static double factor(const rpi_measured_row *rows, const rpi_forecast *f, int count,
                     double *space) {
    for (int i = 0; i < count; i++) space[i] = exp(fabs(log(f[i].step_s / rows[i].step_s)));
    qsort(space, (size_t)count, sizeof *space, compare);
    int place = (int)ceil(.9 * (count + 1)) - 1;
    return space[place < count ? place : count - 1];
}

rp_status rpi_forecast_errors_of(const rpi_measured_row *rows, const rpi_forecast *f, int count,
                                 rpi_forecast_errors *out) {
    double *space = NULL;
    rpi_forecast_errors e = {0};
    RP_TRY(rpi_alloc_array((size_t)count, sizeof *space, "errors", &space));
    for (int i = 0; i < count; i++) {
        double error = f[i].step_s / rows[i].step_s - 1;
        e.mean += fabs(error) / count;
        e.bias += error / count;
        e.worst = fmax(e.worst, fabs(error));
        bool is_covered = rows[i].step_s >= f[i].low_s && rows[i].step_s <= f[i].high_s;
        e.covered += is_covered ? 1. / count : 0;
        space[i] = fabs(error);
    }
    e.median = rpi_median(space, count);
    e.constant_mean = constant_mean(rows, count, space);
    e.skill = e.constant_mean > 0 ? 1 - e.mean / e.constant_mean : 0;
    e.order = order(rows, f, count);
    e.factor = factor(rows, f, count, space);
    rpi_free(space);
    *out = e;
    return RP_OK;
}
