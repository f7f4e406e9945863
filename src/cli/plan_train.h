/* `redpoll plan train`: what a training takes before it is paid for. */
#ifndef RPI_CLI_PLAN_TRAIN_H
#define RPI_CLI_PLAN_TRAIN_H

#include "cli/plan_training.h"
#include "plan/foresight/failures.h"

enum { RPI_TRAIN_NAME = 32, RPI_TRAIN_OFFERS = 16 };

/* What a whole training comes to; tokens 0: not asked for. */
typedef struct rpi_train_bill {
    double tokens, hours, low_hours, high_hours; /* failures and saves included */
    double price, cost;                          /* of a node and hour; negative: not said */
    double node_hours, kwh;                      /* kwh 0: watts are not known */
    bool has_failures;
    rpi_failure_account failures; /* of the training, at the best interval */
    double stop_every_s;
} rpi_train_bill;

/* One training: as it was said, and the layouts that were found. */
typedef struct rpi_train_offer {
    char name[RPI_TRAIN_NAME]; /* "" of the first */
    rpi_plan_training said;
    rpi_planned_training planned;
    rpi_found_layouts found;
    rpi_train_bill bill;
} rpi_train_offer;

void rpi_train_offers_print(const rpi_train_offer *offers, int count, bool explain);
void rpi_train_offers_print_json(const rpi_train_offer *offers, int count);
/* Every fact and term of the best layout, with formula and source. */
void rpi_train_explain(const rpi_train_offer *offer);

#endif
