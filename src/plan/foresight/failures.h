/* What failures take of a training that saves every so often.
 *
 * A stop comes at random, as often in one second as in another (exponential), also while the
 * job saves or restarts. After a failure the work since the last save that was safe is done
 * again. A stop with notice, of a spot node that is taken back, loses no work where a save fits
 * into the notice; it costs the restart, and saves go on as if it had not been.
 *
 * With f failures and s stops with notice a second, C seconds to save, D more until a save is
 * safe and R to restart, T seconds of work and the save behind them take
 *     E = e^((f + s) R) e^(f D) (e^(f (T + C)) - 1) / f
 * on average, whatever D up to T is: exact, and what rpi_failure_runs() simulates. */
#ifndef RPI_PLAN_FAILURES_H
#define RPI_PLAN_FAILURES_H

#include "redpoll/status.h"

typedef struct rpi_failures {
    double failures_per_s; /* of the whole job; above 0, or there are only stops with notice */
    double noticed_per_s;  /* of the whole job: stops before which it saves */
    double save_s;         /* for which the work stands still; above 0 */
    double durable_s;      /* behind a save that goes on beside the work, until it is safe */
    double restart_s;      /* from a stop until the work goes on */
} rpi_failures;

/* Where so much of the time is not left for work, nothing is ever done. */
#define RPI_LEAST_GOODPUT 1e-3

/* Work in whole intervals, at least one, and what is left; interval_s: at most work_s. */
typedef struct rpi_intervals {
    double whole, rest_s;
} rpi_intervals;
rpi_intervals rpi_intervals_of(double interval_s, double work_s);

/* On average, over `work_s` of work: whole intervals, and what is left, each with a save. */
typedef struct rpi_failure_account {
    double interval_s; /* of work between two saves */
    double goodput;    /* share of the time that is work which is kept, in the long run */
    double expected_s; /* of which: */
    double work_s, saving_s, lost_s, restarting_s;
    double stops;
} rpi_failure_account;

/* RP_INVALID: at such an interval nothing is ever done. interval_s: above 0; one that is longer
 * than the work is the work. */
rp_status rpi_failures_account(const rpi_failures *failures, double interval_s, double work_s,
                               rpi_failure_account *out);

/* The share of its nodes' time that an elastic job keeps, whose replicas go on while one is
 * away for restart_s: without those that are away, and the step in which one leaves, which is
 * done again. replicas: at least 1; step_s: 0 where a step is short. Negative or 0: more are
 * away than there are. */
typedef struct rpi_elastic_share {
    double away; /* replicas, on average */
    double kept;
} rpi_elastic_share;
rpi_elastic_share rpi_failures_elastic(const rpi_failures *failures, double replicas,
                                       double step_s);

#endif
