/* The statistics of several communicators in one sum, for programs that make many. */
#ifndef RPI_COMM_STATS_H
#define RPI_COMM_STATS_H

#include "redpoll/comm.h"

/* Add the values of rp_comm_get_stats() for comm to *sum. NULL adds nothing. busy_s is added,
 * too, though communicators are busy at the same time: a sum of it is no wall time. */
void rpi_add_comm_stats(const rp_comm *comm, rp_comm_stats *sum);

#endif
