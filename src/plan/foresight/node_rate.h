/* Rates of events, and prices, as users write them: a number by nodes and time. */
#ifndef RPI_PLAN_NODE_RATE_H
#define RPI_PLAN_NODE_RATE_H

#include "redpoll/status.h"

#include <stdbool.h>

typedef struct rpi_node_rate {
    double per_s;  /* of one node, or of the whole job */
    bool of_a_job; /* does not depend on the number of nodes */
} rpi_node_rate;

/* "6.5/1000-node-days", "1/node-year", and for the whole job "1/3h" and "419/54d". Above 0.
 * RP_INVALID: the message says what is missing. */
rp_status rpi_node_rate_parse(const char *text, rpi_node_rate *out_rate);
/* The rate of all nodes. */
double rpi_node_rate_of(const rpi_node_rate *rate, double nodes);

/* "10.4/node-hour", "250/node-day": in any currency, 0 or more. */
rp_status rpi_price_parse(const char *text, double *out_per_node_hour);

#endif
