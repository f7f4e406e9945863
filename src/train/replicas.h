/* Checks that the ranks' copies of the model are equal. Parameters and optimizer state are
 * compared by checksum when a run starts or is resumed, every --check-replicas steps, and
 * before a checkpoint, which saves rank 0's copy. Without this a rank whose copy differs (by
 * broken memory, a host whose build or processor rounds differently, other files) would spoil
 * all gradients unnoticed. */
#ifndef RPI_TRAIN_REPLICAS_H
#define RPI_TRAIN_REPLICAS_H

#include "redpoll/status.h"

struct rpi_trainer;

/* What rpi_replicas_check() says of copies that differ: `replicas` or `copies`, these words,
 * the step, and up to a `;` who differs in what. `redpoll verify` reads it. */
#define RPI_REPLICAS_UNEQUAL " are not equal after step "

/* RP_MISMATCH on all ranks alike: which ranks differ from the others, in which tensor first,
 * and what to do. Does nothing if the strategy's replicas differ on purpose, or in a world of
 * one. Also compares what each of the ranks that share layers has a copy of. Collective; sends
 * four bytes a rank if all copies are equal. */
rp_status rpi_replicas_check(struct rpi_trainer *trainer);

#endif
