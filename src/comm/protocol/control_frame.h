/* Frames that are only a header: control frames between ranks. */
#ifndef RPI_COMM_CONTROL_FRAME_H
#define RPI_COMM_CONTROL_FRAME_H

#include "comm/core/communicator.h"

/* Sends a header. RP_PENDING: there is no room in the link. [progress] */
rp_status rpi_control_frame_send(rp_comm *comm, int rank, const rpi_frame_header *header);

#endif
