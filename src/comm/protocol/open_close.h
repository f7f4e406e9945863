/* Which communicators of a fabric are open, and frames that come before theirs is. [driver] */
#ifndef RPI_COMM_OPEN_CLOSE_H
#define RPI_COMM_OPEN_CLOSE_H

#include "comm/core/fabric.h"

/* From here on it is part of the fabric, and when it has a number its frames are received. What
 * came too early has come then. */
rp_status rpi_fabric_add(rp_comm *comm);
/* The same of one that is part of it, once it has its number. */
rp_status rpi_fabric_open(rp_comm *comm);
/* Its frames are dropped from here on; true: it was the last. */
bool rpi_fabric_remove(rp_comm *comm);
rp_comm *rpi_fabric_find(const rpi_fabric *fabric, uint32_t id, uint32_t epoch);
/* A frame of no communicator that is open: kept, or done with. RP_MISMATCH: it cannot be. */
rp_status rpi_fabric_take_unopened(rpi_fabric *fabric, int rank, const rpi_frame_header *header,
                                   const void *payload);

#endif
