/* Frames that are a header alone: words between ranks. */
#ifndef RPI_COMM_CONTROL_FRAME_H
#define RPI_COMM_CONTROL_FRAME_H

#include "comm/core/communicator.h"

/* Sends a header. RP_PENDING: there is no room in the link. [driver] */
rp_status rpi_flow_tell(rp_comm *comm, int rank, const rpi_frame_header *header);

#endif
