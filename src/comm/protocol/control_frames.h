/* Frames that are no elements of an operation, and who receives each kind of them. */
#ifndef RPI_COMM_CONTROL_FRAMES_H
#define RPI_COMM_CONTROL_FRAMES_H

#include "comm/core/communicator.h"

/* There is somebody who receives such frames of an open communicator. */
bool rpi_control_frame_is_received(int kind);
/* It is used up at once. A frame that may not come here fails the communicator. [progress] */
void rpi_control_frame_receive(rp_comm *comm, int rank, const rpi_frame_header *header,
                               const void *payload);

#endif
