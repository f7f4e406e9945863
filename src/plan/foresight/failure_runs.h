/* A training played through many times, with stops drawn at random: what has a formula
 * (failures.h) is checked by it, and what has none, such as how far runs differ, is read off.
 */
#ifndef RPI_PLAN_FAILURE_RUNS_H
#define RPI_PLAN_FAILURE_RUNS_H

#include "plan/foresight/failures.h"

enum { RPI_FAILURE_RUNS = 1000000 }; /* at most */

typedef struct rpi_failure_spread {
    double mean_s;
    double error_s;             /* of the mean: 1.96 standard errors; 0 for one run */
    double p10_s, p50_s, p90_s; /* so many percent of runs are done by then */
    double stops;               /* on average */
} rpi_failure_spread;

/* The same account as rpi_failures_account() gives, by `runs` runs; the same seed gives the
 * same bits. RP_INVALID: what that refuses, and runs that would take minutes. RP_NOMEM. */
rp_status rpi_failure_runs(const rpi_failures *failures, double interval_s, double work_s,
                           int64_t runs, uint64_t seed, rpi_failure_spread *out);

#endif
