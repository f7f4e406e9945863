/* What stands behind `local-sgd:`, and which layers make a fragment. */
#ifndef RPI_TRAIN_LOCAL_SGD_CHOICE_H
#define RPI_TRAIN_LOCAL_SGD_CHOICE_H

#include "redpoll/local_sgd.h"
#include "train/strategies/strategy.h"

/* The inner optimizer's state of a fragment, when its exchange has ended. */
typedef enum rpi_inner_state {
    RPI_INNER_KEEP,
    RPI_INNER_AVERAGE, /* over the ranks, exact */
    RPI_INNER_RESET,   /* to zero */
} rpi_inner_state;

typedef struct rpi_local_sgd_choice {
    rp_local_sgd_options options; /* outer: static */
    rpi_inner_state inner_state;
    bool goes_on; /* without ranks that die */
} rpi_local_sgd_choice;

/* For the strategy's row of help. */
extern const rpi_option rpi_local_sgd_option_rows[];

/* text: "outer=diloco,every=100", NULL: nothing. RP_INVALID names what cannot be. */
rp_status rpi_local_sgd_choose(const rpi_strategy *strategy, const char *text,
                               rpi_local_sgd_choice *out_choice);

/* The layer of each parameter, a number from 0, and how many layers there are: a block of a
 * model ("h.3", "layer1.0") where parameters say so by a number in their names, else what
 * stands before the last dot. */
int rpi_local_sgd_layers(const rpi_weights *weights, uint32_t *out_layers);

#endif
