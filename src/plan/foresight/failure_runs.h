/* A training simulated many times, with stops drawn at random. It checks the formulas of
 * failures.h, and gives what has no formula, such as the spread of trainings. */
#ifndef RPI_PLAN_FAILURE_RUNS_H
#define RPI_PLAN_FAILURE_RUNS_H

#include "plan/foresight/failures.h"

enum { RPI_FAILURE_RUNS = 1000000 }; /* at most */

typedef struct rpi_failure_spread {
    double mean_s;
    double error_s;             /* of the mean: 1.96 standard errors; 0 with one run */
    double p10_s, p50_s, p90_s; /* the time after which so many percent are done */
    double stops;               /* mean number of stops */
} rpi_failure_spread;

/* What rpi_failures_account() gives, by `runs` simulated trainings; the same seed gives the
 * same bits. RP_INVALID: what that function refuses, and simulations that would take minutes.
 * RP_NOMEM. */
rp_status rpi_failure_runs(const rpi_failures *failures, double interval_s, double work_s,
                           int64_t runs, uint64_t seed, rpi_failure_spread *out);

#endif
