/* The ranks of one host among those of a communicator. */
#ifndef RPI_TRAIN_HOST_GROUP_H
#define RPI_TRAIN_HOST_GROUP_H

#include "redpoll/comm.h"

/* Of this rank's host, where all hosts of the communicator's ranks have several of them, and
 * there are several hosts; else 0. */
int rpi_host_group_ranks(const rp_comm *comm);
/* Then, a communicator of them. Collective over `comm`, which outlives it. */
rp_status rpi_host_group_open(rp_comm *comm, rp_comm **out_group);

#endif
