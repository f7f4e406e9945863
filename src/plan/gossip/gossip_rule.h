/* How a rank's parameters move between two exchanges with its neighbours: the algorithms of
 * decentralised training as data. A rule is three lists of linear lines over vectors of one
 * length; whoever runs it (rpi_gossip_lines) knows the element type, whoever exchanges knows
 * the topology, and neither knows the algorithm.
 *
 *     once:       `begin`                    state from x and its gradient
 *     each step:  gradient at x; `before`;   SENT is then mixed into MIXED by the step's
 * topology exchange; `after`          x is the next
 *
 * A pushing rule also sends a number p, 1 at first, which is mixed as the vectors are, and
 * divides by what it has become: for weights of which columns sum to 1 and rows do not. A rule
 * with copies sends what has changed since they were made. */
#ifndef RPI_PLAN_GOSSIP_RULE_H
#define RPI_PLAN_GOSSIP_RULE_H

#include "redpoll/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Vectors of a rank. */
typedef enum rpi_gossip_slot {
    RPI_GOSSIP_X,        /* parameters, which the gradient is of */
    RPI_GOSSIP_GRADIENT, /* at x */
    RPI_GOSSIP_SENT,     /* and the next: what neighbours get */
    RPI_GOSSIP_SENT_2,
    RPI_GOSSIP_MIXED, /* and the next: the weighted sums of these, the own included */
    RPI_GOSSIP_MIXED_2,
    RPI_GOSSIP_STATE, /* and the next two: kept from step to step, and in checkpoints */
    RPI_GOSSIP_STATE_2,
    RPI_GOSSIP_STATE_3,
    RPI_GOSSIP_SLOTS
} rpi_gossip_slot;

enum { RPI_GOSSIP_TERMS = 4, RPI_GOSSIP_LINES = 5 };

/* The numbers of a step. */
typedef struct rpi_gossip_numbers {
    double rate;  /* learning rate */
    double p;     /* of a pushing rule */
    double gamma; /* of a rule with copies */
} rpi_gossip_numbers;

typedef enum rpi_gossip_factor {
    RPI_GOSSIP_ONE,
    RPI_GOSSIP_RATE,
    RPI_GOSSIP_GAMMA
} rpi_gossip_factor;

/* What a vector is multiplied by: `halves` halves of the factor. Zeros: no term. */
typedef struct rpi_gossip_term {
    uint8_t slot;
    int8_t halves;
    uint8_t factor; /* an rpi_gossip_factor */
} rpi_gossip_term;

/* into = the sum of the terms, from the left; divided by p where it `pushes`. */
typedef struct rpi_gossip_line {
    uint8_t into;
    bool pushes;
    rpi_gossip_term terms[RPI_GOSSIP_TERMS];
} rpi_gossip_line;

typedef struct rpi_gossip_rule {
    const char *name, *summary;
    const char *topology; /* unless told otherwise: one that fits any number of ranks */
    const char *needs;    /* of a topology, in the words of a refusal; NULL: nothing more */
    int sends;            /* vectors a step: 1 or 2 */
    int states;           /* 0 to 3 */
    bool pushes;          /* and p */
    /* Neighbours keep copies of x, and what is sent are changes of these. Whatever a codec
     * makes of a change is what the copies become: in `after`, SENT is what neighbours have
     * decoded, and MIXED the sum of such, the own included. Every round has the same edges. */
    bool copies;
    /* For SENT, SENT_2, MIXED, MIXED_2: 1 + the slot in whose memory it may lie, which no line
     * reads while the other holds something else. 0: it needs memory of its own. */
    uint8_t lies_in[4];
    rpi_gossip_line begin[RPI_GOSSIP_LINES], before[RPI_GOSSIP_LINES], after[RPI_GOSSIP_LINES];
} rpi_gossip_rule;

/* The catalogue; NULL past the end. */
const rpi_gossip_rule *rpi_gossip_rule_at(int index);
/* RP_INVALID names those there are, and the nearest. */
rp_status rpi_gossip_rule_find(const char *name, const rpi_gossip_rule **out_rule);

/* Neither `begin` nor `before` waits for the gradient: the exchange begins with the step. */
bool rpi_gossip_rule_is_early(const rpi_gossip_rule *rule);
/* Vectors that one step reads and writes in `before` and `after`, each time it does. */
int rpi_gossip_rule_passes(const rpi_gossip_rule *rule);

/* Does a list read this slot? */
bool rpi_gossip_lines_use(const rpi_gossip_line lines[RPI_GOSSIP_LINES], int slot);

/* Run one list of a rule over `count` elements; slots[k] may be NULL where no line uses it, and
 * no two are the same memory but as `lies_in` says. Products are rounded, then sums: nothing is
 * fused. Pure. */
void rpi_gossip_lines_f64(const rpi_gossip_line lines[RPI_GOSSIP_LINES],
                          const rpi_gossip_numbers *numbers, size_t count,
                          double *const slots[RPI_GOSSIP_SLOTS]);
void rpi_gossip_lines_f32(const rpi_gossip_line lines[RPI_GOSSIP_LINES],
                          const rpi_gossip_numbers *numbers, size_t count,
                          float *const slots[RPI_GOSSIP_SLOTS]);

#endif
