/* A training on some machines as a user describes it, and its node hours, money and energy.
 *
 *     "fast: price=24.5/node-hour, nodes=2, steps=100000, batch=4096, iterations-per-s=1.18,
 *      measured-batch=1024"
 *
 * Several phases are separated by ';'. The time of a phase is given in one of four ways: hours;
 * cost, if there is a price; tokens and tokens-per-s; steps and iterations-per-s, with batch
 * and measured-batch if the rate was measured with another batch: hours = steps (batch /
 * measured-batch) / (iterations-per-s) / 3600. */
#ifndef RPI_PLAN_OFFER_H
#define RPI_PLAN_OFFER_H

#include "redpoll/status.h"

enum { RPI_OFFER_NAME = 32 };

typedef struct rpi_cost_offer {
    char name[RPI_OFFER_NAME]; /* the text before the colon; "" for none */
    double hours;              /* of all phases, divided by goodput */
    double nodes, node_hours;
    double price;              /* of a node and hour; negative: not given */
    double cost;               /* negative: no price */
    double tokens, watts, kwh; /* 0: not given; tokens also follow from sequence and batch */
} rpi_cost_offer;

/* nodes, price: defaults for what the text does not give; price negative: unknown. RP_INVALID:
 * the message says what is wrong with the text. */
rp_status rpi_offer_parse(const char *text, double nodes, double price,
                          rpi_cost_offer *out_offer);

/* The price of a node and hour at which offer `at` costs as much as the cheapest of the others;
 * negative: another has no price, or there is no other. */
double rpi_offer_break_even(const rpi_cost_offer *offers, int count, int at);

/* A key before '=', and its meaning; NULL past the end. */
typedef struct rpi_offer_key {
    const char *name, *help;
} rpi_offer_key;
const rpi_offer_key *rpi_offer_key_at(int index);

#endif
