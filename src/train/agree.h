/* Checks that all ranks were started with the same choices. */
#ifndef RPI_TRAIN_AGREE_H
#define RPI_TRAIN_AGREE_H

#include "train/trainer.h"

/* Compares what replicas must share with rank 0's choices: model, data, batch, codec, the step
 * from which to go on, and every option of training in the command's table
 * (rpi_train_options.table), except those that a host or a rank may have of its own. Collective
 * over comm. RP_MISMATCH names the rank and the first choice that differs. */
rp_status rpi_train_agree(const rpi_trainer *trainer, rp_comm *comm);

#endif
