/* The communicators of a rank in a grid, beside the communicator of all ranks. */
#ifndef RPI_TRAIN_GRID_COMMS_H
#define RPI_TRAIN_GRID_COMMS_H

#include "redpoll/comm.h"
#include "train/parallel/train_place.h"

/* NULL: the group has all ranks of the world, or this rank alone. */
typedef struct rpi_grid_comms {
    rp_comm *replicas; /* ranks with the same parameters; they sum their gradients */
    rp_comm *stages;   /* the stages of this replica; their messages have priority */
    rp_comm *tensor;   /* ranks that share the layers of this stage of this replica */
    rp_comm *hosts;    /* those of `replicas` on this host (host_group.h), which keep a copy */
    /* borrowed: the communicator of the tensor group's nodes (tensor_nodes.h) */
    rp_comm *layers;
    rp_comm *context; /* ranks with the same layers that share this replica's sequences */
    rp_comm *keys;    /* borrowed: the communicator that gathers keys (context_nodes.h) */
} rpi_grid_comms;

/* Opens none where each rank is a replica of its own. Collective over the world, which must
 * outlive them. */
rp_status rpi_grid_comms_open(rp_comm *world, const rpi_train_place *place,
                              rpi_grid_comms *out_comms);
void rpi_grid_comms_close(rpi_grid_comms *comms); /* zeros are fine */

/* Calls rp_comm_abort() for each, before the world is aborted: a communicator that has failed
 * by itself on some rank does not tell the others. */
void rpi_grid_comms_abort(const rpi_grid_comms *comms, rp_status status, const char *message);

/* What this rank has sent, and how long it has waited, in all of them and in the world. */
void rpi_grid_comms_stats(const rpi_grid_comms *comms, const rp_comm *world,
                          rp_comm_stats *out_stats);

#endif
