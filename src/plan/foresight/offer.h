/* A training on some machines as a user writes it down, and what it comes to: node hours,
 * money, energy.
 *
 *     "fast: price=24.5/node-hour, nodes=2, steps=100000, batch=4096, iterations-per-s=1.18,
 *      measured-batch=1024"
 *
 * A recipe of several phases has ';' between them. How long a phase takes is said in one of
 * four ways: hours; cost, where there is a price; tokens and tokens-per-s; steps and
 * iterations-per-s, with batch and measured-batch where the rate was measured at another batch:
 * hours = steps (batch / measured-batch) / (iterations-per-s) / 3600. */
#ifndef RPI_PLAN_OFFER_H
#define RPI_PLAN_OFFER_H

#include "redpoll/status.h"

enum { RPI_OFFER_NAME = 32 };

typedef struct rpi_cost_offer {
    char name[RPI_OFFER_NAME]; /* what stands in front of the colon; "" for none */
    double hours;              /* of all phases, divided by goodput */
    double nodes, node_hours;
    double price;              /* of a node and hour; negative: not said */
    double cost;               /* negative: no price */
    double tokens, watts, kwh; /* 0: not said; tokens also where sequence and batch are */
} rpi_cost_offer;

/* nodes, price: where the text does not say them; price negative: not known. RP_INVALID says
 * what is wrong with the text. */
rp_status rpi_offer_parse(const char *text, double nodes, double price,
                          rpi_cost_offer *out_offer);

/* The price of a node and hour at which offer `at` costs what the cheapest of the others does;
 * negative where another has no price, or there is none. */
double rpi_offer_break_even(const rpi_cost_offer *offers, int count, int at);

/* What may stand in front of '=', past the end NULL, and what it means. */
typedef struct rpi_offer_key {
    const char *name, *help;
} rpi_offer_key;
const rpi_offer_key *rpi_offer_key_at(int index);

#endif
