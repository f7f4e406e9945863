/* The control frames of a send and its receive. */
#ifndef RPI_COMM_PAIR_PROTOCOL_H
#define RPI_COMM_PAIR_PROTOCOL_H

#include "comm/core/communicator.h"

/* A receive from any rank takes a sender, and is then like any other. [progress] */
bool rpi_p2p_bind(rp_request *request);
/* The frame at the head of the link says that its rank has something to send. [progress] */
void rpi_p2p_receive_rts(rp_comm *comm, int rank, const rpi_frame_header *header);

#endif
