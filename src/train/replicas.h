/* Are the ranks' copies of the model still one? Parameters and optimizer state are compared by
 * checksum when a run starts or goes on, every --check-replicas steps, and before a checkpoint:
 * rank 0's copy is the one that is saved. Without this a rank that has drifted away (broken
 * memory, a host whose build or processor rounds differently, other files) would spoil
 * everybody's gradients unseen. */
#ifndef RPI_TRAIN_REPLICAS_H
#define RPI_TRAIN_REPLICAS_H

#include "redpoll/status.h"

struct rpi_trainer;

/* RP_MISMATCH on all ranks alike: which ranks differ from the others, in which tensor first,
 * and what to do. Nothing to compare where the strategy means its replicas to differ, or in a
 * world of one. Of ranks that share layers, what each of them has a copy of, too. Collective;
 * four bytes a rank as long as all is well. */
rp_status rpi_replicas_check(struct rpi_trainer *trainer);

#endif
