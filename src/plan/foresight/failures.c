#include "plan/foresight/failures.h"

#include "base/status.h"

#include <math.h>

/* The time until `length_s` seconds have passed without a failure: (e^(f L) - 1) / f. */
static double running(const rpi_failures *f, double length_s) {
    double rate = f->failures_per_s;
    return rate > 0 ? expm1(rate * length_s) / rate : length_s;
}

/* The factor by which restarts lengthen running time. */
static double stretch(const rpi_failures *f) {
    return exp((f->failures_per_s + f->noticed_per_s) * f->restart_s);
}

static double goodput(const rpi_failures *f, double interval_s) {
    double safe = exp(f->failures_per_s * f->durable_s);
    return interval_s / (stretch(f) * safe * running(f, interval_s + f->save_s));
}

/* The running time of all intervals: the first save is safe after durable_s, and each later one
 * an interval after the one before, from a restart on as from the beginning. */
static double all_running(const rpi_failures *f, double interval_s, double whole,
                          double rest_s) {
    double safe = exp(f->failures_per_s * f->durable_s);
    double first = running(f, interval_s + f->save_s + f->durable_s);
    double others = (whole - 1) * safe * running(f, interval_s + f->save_s);
    return first + others + (rest_s > 0 ? safe * running(f, rest_s + f->save_s) : 0);
}

rp_status rpi_failures_account(const rpi_failures *f, double interval_s, double work_s,
                               rpi_failure_account *out) {
    rpi_failure_account a = {.interval_s = fmin(interval_s, work_s), .work_s = work_s};
    rpi_intervals n = rpi_intervals_of(a.interval_s, work_s);
    a.goodput = goodput(f, a.interval_s);
    if (!(a.goodput >= RPI_LEAST_GOODPUT))
        return RP_FAIL(INVALID,
                       "failures come so often that nothing is ever done: one every %.4g s, "
                       "where %.4g s of work, %.4g s to save and %.4g s to restart need to go "
                       "well",
                       1 / (f->failures_per_s + f->noticed_per_s), a.interval_s,
                       f->save_s + f->durable_s, f->restart_s);
    double runs_s = all_running(f, a.interval_s, n.whole, n.rest_s);
    a.expected_s = runs_s * stretch(f);
    a.stops = a.expected_s * (f->failures_per_s + f->noticed_per_s);
    a.saving_s = (n.whole + (n.rest_s > 0)) * f->save_s + f->durable_s;
    a.lost_s = fmax(0, runs_s - work_s - a.saving_s);
    a.restarting_s = a.expected_s - runs_s;
    *out = a;
    return RP_OK;
}

rpi_intervals rpi_intervals_of(double interval_s, double work_s) {
    double whole = floor(work_s / interval_s * (1 + 1e-12));
    double rest_s = work_s - whole * interval_s;
    return (rpi_intervals){whole, rest_s > 1e-9 * interval_s ? rest_s : 0};
}

rpi_elastic_share rpi_failures_elastic(const rpi_failures *f, double replicas, double step_s) {
    rpi_failures step = {.failures_per_s = f->failures_per_s + f->noticed_per_s};
    double away = step.failures_per_s * f->restart_s;
    double redone = step_s > 0 ? step_s / running(&step, step_s) : 1;
    return (rpi_elastic_share){away, (1 - away / replicas) * redone};
}
