#include "plan/foresight/failure_runs.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* So many draws take about ten seconds on one core. */
#define MOST_DRAWS 3e8

/* A training: since the latest safe save it has run for `ran_s` without a failure. */
typedef struct run {
    const rpi_failures *f;
    double interval_s;
    double left; /* whole intervals that are not safe yet */
    double rest_s;
    double ran_s, wall_s, stops;
    rpi_rng rng;
} run;

static double draw_s(run *r, double per_s) {
    double u = ((double)rpi_rng_u32(&r->rng) + .5) * 0x1p-32;
    return -log(u) / per_s;
}

/* The time from the latest save to the end. */
static double length_s(const run *r) {
    double rest_s = r->rest_s > 0 ? r->rest_s + r->f->save_s : 0;
    return r->left * (r->interval_s + r->f->save_s) + rest_s + r->f->durable_s;
}

/* Goes back to the latest safe save. */
static void lose_work(run *r) {
    double safe = floor((r->ran_s - r->f->durable_s) / (r->interval_s + r->f->save_s));
    r->left -= fmax(0, fmin(r->left, safe));
    r->ran_s = 0;
}

static void restart(run *r, double per_s) {
    double s;
    while ((s = draw_s(r, per_s)) < r->f->restart_s) {
        r->wall_s += s;
        r->stops++;
    }
    r->wall_s += r->f->restart_s;
}

static void play(run *r) {
    double per_s = r->f->failures_per_s + r->f->noticed_per_s;
    double share = r->f->failures_per_s / per_s;
    for (;;) {
        double s = draw_s(r, per_s), end_s = length_s(r) - r->ran_s;
        if (s >= end_s) {
            r->wall_s += end_s;
            return;
        }
        r->wall_s += s;
        r->ran_s += s;
        r->stops++;
        if (((double)rpi_rng_u32(&r->rng) + .5) * 0x1p-32 < share) lose_work(r);
        restart(r, per_s);
    }
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts walls. */
static void sum_up(double *walls, int64_t runs, rpi_failure_spread *out) {
    double n = (double)runs, mean = 0, squares = 0;
    for (int64_t i = 0; i < runs; i++) mean += walls[i] / n;
    for (int64_t i = 0; i < runs; i++) squares += (walls[i] - mean) * (walls[i] - mean);
    qsort(walls, (size_t)runs, sizeof *walls, compare);
    out->mean_s = mean;
    out->error_s = runs > 1 ? 1.96 * sqrt(squares / (n - 1) / n) : 0;
    out->p10_s = walls[(int64_t)(.1 * (n - 1) + .5)];
    out->p50_s = walls[(int64_t)(.5 * (n - 1) + .5)];
    out->p90_s = walls[(int64_t)(.9 * (n - 1) + .5)];
}

rp_status rpi_failure_runs(const rpi_failures *f, double interval_s, double work_s,
                           int64_t runs, uint64_t seed, rpi_failure_spread *out) {
    rpi_failure_account a;
    double *walls;
    RP_TRY(rpi_failures_account(f, interval_s, work_s, &a));
    if (runs < 1 || runs > RPI_FAILURE_RUNS)
        return RP_FAIL(INVALID, "%lld runs to simulate; 1 to %d are allowed", (long long)runs,
                       RPI_FAILURE_RUNS);
    if ((double)runs * (a.stops + 1) > MOST_DRAWS)
        return RP_FAIL(INVALID,
                       "%lld runs of %.3g stops each would take long to simulate; ask for %.0f",
                       (long long)runs, a.stops, floor(MOST_DRAWS / (a.stops + 1)));
    RP_TRY(rpi_alloc_array((size_t)runs, sizeof *walls, "simulated times", &walls));
    rpi_intervals n = rpi_intervals_of(a.interval_s, work_s);
    rpi_failure_spread spread = {0};
    for (int64_t i = 0; i < runs; i++) {
        run r = {.f = f, .interval_s = a.interval_s, .left = n.whole, .rest_s = n.rest_s};
        r.rng = rpi_rng_make(seed, RPI_RNG_FORESIGHT, (uint64_t)i);
        play(&r);
        walls[i] = r.wall_s;
        spread.stops += r.stops / (double)runs;
    }
    sum_up(walls, runs, &spread);
    rpi_free(walls);
    *out = spread;
    return RP_OK;
}
