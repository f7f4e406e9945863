/* The time that failures cost a training which saves at intervals.
 *
 * Stops come at random, in each second with the same probability (exponential), also while the
 * job saves or restarts. After a failure the work since the last safe save is repeated. A stop
 * with notice, when a spot node is taken back, loses no work if a save fits into the notice; it
 * costs the restart, and does not count as a save.
 *
 * With f failures and s stops with notice a second, C seconds to save, D more until a save is
 * safe and R to restart, T seconds of work and the save after them take
 *     E = e^((f + s) R) e^(f D) (e^(f (T + C)) - 1) / f
 * on average, for every D up to T. This is exact; rpi_failure_runs() simulates it. */
#ifndef RPI_PLAN_FAILURES_H
#define RPI_PLAN_FAILURES_H

#include "redpoll/status.h"

typedef struct rpi_failures {
    double failures_per_s; /* of the whole job; above 0, or all stops come with notice */
    double noticed_per_s;  /* of the whole job: stops before which the job saves */
    double save_s;         /* the time for which work stops; above 0 */
    double durable_s;      /* from the end of the save until it is safe, while work goes on */
    double restart_s;      /* from a stop until the work goes on */
} rpi_failures;

/* With less goodput than this nothing is ever done. */
#define RPI_LEAST_GOODPUT 1e-3

/* Work in whole intervals, at least one, and a rest; interval_s: at most work_s. */
typedef struct rpi_intervals {
    double whole, rest_s;
} rpi_intervals;
rpi_intervals rpi_intervals_of(double interval_s, double work_s);

/* Means over `work_s` of work: whole intervals, and a rest, each with a save. */
typedef struct rpi_failure_account {
    double interval_s; /* of work between two saves */
    double goodput;    /* share of the time for work that is kept, in the long run */
    double expected_s; /* of which: */
    double work_s, saving_s, lost_s, restarting_s;
    double stops;
} rpi_failure_account;

/* RP_INVALID: with this interval nothing is ever done. interval_s: above 0; a longer one than
 * the work is the work. */
rp_status rpi_failures_account(const rpi_failures *failures, double interval_s, double work_s,
                               rpi_failure_account *out);

/* The share of its nodes' time that an elastic job keeps. Its replicas go on while one is away
 * for restart_s; the time of absent replicas is lost, and the step in which one leaves, which
 * is repeated. replicas: at least 1; step_s: 0 if a step is short. 0 or less: more replicas are
 * away than there are. */
typedef struct rpi_elastic_share {
    double away; /* mean number of absent replicas */
    double kept;
} rpi_elastic_share;
rpi_elastic_share rpi_failures_elastic(const rpi_failures *failures, double replicas,
                                       double step_s);

#endif
