/* Statistics of several communicators, as those that make many of them tell them: in one sum.
 */
#ifndef RPI_COMM_STATS_H
#define RPI_COMM_STATS_H

#include "redpoll/comm.h"

/* Add what rp_comm_get_stats() says of comm to *sum. NULL adds nothing. busy_s, too, though
 * communicators are busy at the same time: a sum of it is no wall time. */
void rpi_add_comm_stats(const rp_comm *comm, rp_comm_stats *sum);

#endif
