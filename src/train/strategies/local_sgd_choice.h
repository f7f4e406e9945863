/* Reads the options after `local-sgd:`, and says which layers make a fragment. */
#ifndef RPI_TRAIN_LOCAL_SGD_CHOICE_H
#define RPI_TRAIN_LOCAL_SGD_CHOICE_H

#include "redpoll/local_sgd.h"
#include "train/strategies/strategy.h"

/* What happens to the inner optimizer's state of a fragment when its exchange has ended. */
typedef enum rpi_inner_state {
    RPI_INNER_KEEP,
    RPI_INNER_AVERAGE, /* over the ranks, exactly */
    RPI_INNER_RESET,   /* set to zero */
} rpi_inner_state;

typedef struct rpi_local_sgd_choice {
    rp_local_sgd_options options; /* its field `outer` is static */
    rpi_inner_state inner_state;
    bool goes_on; /* goes on without ranks that die */
} rpi_local_sgd_choice;

/* For the strategy's row of help. */
extern const rpi_option rpi_local_sgd_option_rows[];

/* text: "outer=diloco,every=100"; NULL: no options. RP_INVALID: the message names the wrong
 * one. */
rp_status rpi_local_sgd_choose(const rpi_strategy *strategy, const char *text,
                               rpi_local_sgd_choice *out_choice);

/* The layer of each parameter, numbered from 0, and the number of layers. A layer is a block of
 * a model ("h.3", "layer1.0") if parameters have such a number in their names, else the part of
 * the name before the last dot. */
int rpi_local_sgd_layers(const rpi_weights *weights, uint32_t *out_layers);

#endif
