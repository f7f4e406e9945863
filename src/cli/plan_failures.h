/* `redpoll plan failures`: what failures take of a training, and what it costs. */
#ifndef RPI_CLI_PLAN_FAILURES_H
#define RPI_CLI_PLAN_FAILURES_H

#include "plan/foresight/failure_runs.h"
#include "plan/foresight/failures.h"

#include <stdbool.h>

enum { RPI_INTERVALS = 8 }; /* of the rules and the user's, at most */

typedef struct rpi_interval_row {
    const char *name; /* of the rule, "yours", or "on-notice" */
    rpi_failure_account account;
} rpi_interval_row;

typedef struct rpi_failure_plan {
    int64_t nodes, replicas; /* replicas: 0 where the job restarts as a whole */
    double work_s, step_s;   /* step_s: 0 where it is not said */
    double notice_s;         /* where nodes are spot nodes, else 0 */
    bool is_spot, notice_fits;
    rpi_failures failures; /* preemptions included */
    rpi_interval_row rows[RPI_INTERVALS];
    int row_count, chosen;
    int64_t runs; /* simulated of the chosen row; 0: none */
    rpi_failure_spread spread;
    rpi_elastic_share elastic; /* where there are replicas */
    /* By node and hour, negative where not said: of the nodes that are planned with, and of
     * such as are not taken back. */
    double price, demand_price;
    rpi_failure_account demand; /* with demand_price: nodes that are not taken back */
} rpi_failure_plan;

void rpi_failure_plan_print(const rpi_failure_plan *plan);
void rpi_failure_plan_print_json(const rpi_failure_plan *plan);

#endif
