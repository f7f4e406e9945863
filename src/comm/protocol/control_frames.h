/* Frames without elements of an operation, and which function receives each kind. */
#ifndef RPI_COMM_CONTROL_FRAMES_H
#define RPI_COMM_CONTROL_FRAMES_H

#include "comm/core/communicator.h"

/* Whether such frames of an open communicator have a receiver. */
bool rpi_control_frame_is_received(int kind);
/* It is processed at once. A frame that may not come here fails the communicator. [progress] */
void rpi_control_frame_receive(rp_comm *comm, int rank, const rpi_frame_header *header,
                               const void *payload);

#endif
