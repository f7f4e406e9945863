/* Checks that the ranks of a replica learn from the same samples. They share layers, sequences
 * or stages of one model, each reads its own files, and files that differ from host to host
 * would train on embeddings of one text with labels of another. */
#ifndef RPI_TRAIN_SAME_SAMPLES_H
#define RPI_TRAIN_SAME_SAMPLES_H

#include "train/trainer.h"

/* Compares checksums of each rank's samples of the next step. Collective over comm, which has
 * all ranks. RP_MISMATCH on all ranks names the first that has others than the first rank of
 * its replica. Does nothing where each replica is one rank, or no step is left. */
rp_status rpi_same_samples_check(rpi_trainer *trainer, rp_comm *comm);

#endif
