#include "plan/foresight/rank_scaling.h"

#include <math.h>

void rpi_scaling_know_cores(const rpi_machine *m, double bucket_bytes, rpi_scaling_work *work) {
    if (!m->rates) return;
    work->sum_bytes_s = rpi_rate_at(&m->rates->sums, &bucket_bytes);
    work->memory_bytes_s = rpi_plan_device_value(&m->device, RPI_FACT_MEMORY_RATE);
}

double rpi_scaling_exposed_s(const rpi_scaling_exchange *x) {
    return (x->core_s + fmax(x->last_s, x->time_s - x->window_s)) / x->every;
}

/* The expectation of the largest of n is near the quantile of n normals (Blom, 1958): within
 * 0.03 from n = 2 on. */
double rpi_scaling_slowest(double n) {
    double low = 0, high = 10, share = (n - .375) / (n + .25);
    if (n < 2) return 0;
    while (high - low > 1e-9) {
        double middle = (low + high) / 2;
        *(erfc(-middle / sqrt(2)) / 2 < share ? &low : &high) = middle;
    }
    return low;
}

/* The times of steps between two exchanges add up; their deviations grow by the root. */
double rpi_scaling_step_s(const rpi_scaling_work *w, const rpi_scaling_exchange *x) {
    double behind_s = w->jitter_s * rpi_scaling_slowest(x->waits_for) / sqrt(x->every);
    return w->compute_s + behind_s + rpi_scaling_exposed_s(x);
}
