/* Were all ranks started with the same choices? */
#ifndef RPI_TRAIN_AGREE_H
#define RPI_TRAIN_AGREE_H

#include "train/trainer.h"

/* Compare what replicas must share (model, data, seed, batch, rates, codec, the step to go on
 * from) with rank 0's. Collective. RP_MISMATCH names the rank and the first choice that
 * differs. */
rp_status rpi_train_agree(const rpi_trainer *trainer);

#endif
