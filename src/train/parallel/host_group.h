/* The ranks of a communicator that are on one host. */
#ifndef RPI_TRAIN_HOST_GROUP_H
#define RPI_TRAIN_HOST_GROUP_H

#include "redpoll/comm.h"

/* The number of ranks on this rank's host, if the communicator has several hosts and each of
 * them has several ranks; else 0. */
int rpi_host_group_ranks(const rp_comm *comm);
/* Opens a communicator of them in that case. Collective over `comm`, which must outlive it. */
rp_status rpi_host_group_open(rp_comm *comm, rp_comm **out_group);

#endif
