/* The communicators of a rank in a grid, beside that of all ranks. */
#ifndef RPI_TRAIN_GRID_COMMS_H
#define RPI_TRAIN_GRID_COMMS_H

#include "redpoll/comm.h"
#include "train/parallel/train_place.h"

/* NULL: all ranks are in it, or nobody but this one. */
typedef struct rpi_grid_comms {
    rp_comm *replicas; /* ranks that hold what this one holds: gradients are summed over them */
    rp_comm *stages;   /* of this replica, by stage; what travels here goes first */
    rp_comm *tensor;   /* that share the layers of this stage of this replica */
    rp_comm *hosts;    /* of `replicas`, on one host (host_group.h), where they keep a copy */
    rp_comm *layers;   /* borrowed: where those meet in a layer (tensor_nodes.h) */
    rp_comm *context;  /* that share the sequences of this replica, with the same layers */
    rp_comm *keys;     /* borrowed: where those gather keys (context_nodes.h) */
} rpi_grid_comms;

/* None where each rank is a replica of its own. Collective over the world, which outlives them.
 */
rp_status rpi_grid_comms_open(rp_comm *world, const rpi_train_place *place,
                              rpi_grid_comms *out_comms);
void rpi_grid_comms_close(rpi_grid_comms *comms); /* zeros are fine */

/* As rp_comm_abort() of each, before that of the world: one that has failed by itself on some
 * rank tells nothing on to the others. */
void rpi_grid_comms_abort(const rpi_grid_comms *comms, rp_status status, const char *message);

/* What this rank has sent and waited for in all of them and in the world. */
void rpi_grid_comms_stats(const rpi_grid_comms *comms, const rp_comm *world,
                          rp_comm_stats *out_stats);

#endif
