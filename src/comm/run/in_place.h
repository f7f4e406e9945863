/* What others may know of in_place.c. */
#ifndef RPI_COMM_IN_PLACE_H
#define RPI_COMM_IN_PLACE_H

#include "redpoll/comm.h"

#include <stdbool.h>

/* Some other rank of the communicator reads what lies in a buffer where it lies. comm NULL:
 * none does. Any thread. */
bool rpi_comm_reads_in_place(const rp_comm *comm);

#endif
