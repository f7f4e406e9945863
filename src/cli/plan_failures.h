/* `redpoll plan failures`: the time that failures cost a training, and the money. */
#ifndef RPI_CLI_PLAN_FAILURES_H
#define RPI_CLI_PLAN_FAILURES_H

#include "plan/foresight/failure_runs.h"
#include "plan/foresight/failures.h"

#include <stdbool.h>

enum { RPI_INTERVALS = 8 }; /* the most intervals, of the rules and the user's */

typedef struct rpi_interval_row {
    const char *name; /* the rule's name, "yours", or "on-notice" */
    rpi_failure_account account;
} rpi_interval_row;

typedef struct rpi_failure_plan {
    int64_t nodes, replicas; /* replicas: 0 if the job restarts as a whole */
    double work_s, step_s;   /* step_s: 0 if it is not given */
    double notice_s;         /* for spot nodes, else 0 */
    bool is_spot, notice_fits;
    rpi_failures failures; /* preemptions included */
    rpi_interval_row rows[RPI_INTERVALS];
    int row_count, chosen;
    int64_t runs; /* simulations of the chosen row; 0: none */
    rpi_failure_spread spread;
    rpi_elastic_share elastic; /* if there are replicas */
    /* By node and hour, negative if not given: of the nodes of the plan, and of nodes that are
     * not taken back. */
    double price, demand_price;
    /* with demand_price: the same on nodes that are not taken back */
    rpi_failure_account demand;
} rpi_failure_plan;

void rpi_failure_plan_print(const rpi_failure_plan *plan);
void rpi_failure_plan_print_json(const rpi_failure_plan *plan);

#endif
