/* The parameters that ranks with replicas of their own stand for: their mean. It takes the
 * place of a rank's own while they are evaluated or saved. */
#ifndef RPI_TRAIN_CONSENSUS_H
#define RPI_TRAIN_CONSENSUS_H

#include "train/trainer.h"

typedef struct rpi_consensus {
    float *own;      /* NULL: all ranks have the same, and nothing was done */
    double distance; /* root mean square over ranks of ||x - mean|| / ||mean||; NaN: no ranks
                        that differ */
} rpi_consensus;

/* Collective. The mean of all ranks' parameters, in f32 and in rank order, is in the weights
 * until rpi_consensus_leave, which is also due after a failure. */
rp_status rpi_consensus_enter(rpi_trainer *trainer, rpi_consensus *out_consensus);
void rpi_consensus_leave(rpi_trainer *trainer, rpi_consensus *consensus);

#endif
