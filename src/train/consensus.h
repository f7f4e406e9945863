/* The mean of the parameters of ranks that have parameters of their own. It replaces a rank's
 * own parameters while they are evaluated or saved. */
#ifndef RPI_TRAIN_CONSENSUS_H
#define RPI_TRAIN_CONSENSUS_H

#include "train/trainer.h"

typedef struct rpi_consensus {
    float *own; /* NULL: all ranks have the same, and nothing was replaced */
    /* root mean square over ranks of ||x - mean|| / ||mean||; NaN: ranks do not differ */
    double distance;
} rpi_consensus;

/* Collective. The weights hold the mean of all ranks' parameters, in f32 and in rank order,
 * until rpi_consensus_leave(), which must be called after a failure, too. */
rp_status rpi_consensus_enter(rpi_trainer *trainer, rpi_consensus *out_consensus);
void rpi_consensus_leave(rpi_trainer *trainer, rpi_consensus *consensus);

#endif
