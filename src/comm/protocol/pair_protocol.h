/* What the two sides of a send and its receive say to each other. */
#ifndef RPI_COMM_PAIR_PROTOCOL_H
#define RPI_COMM_PAIR_PROTOCOL_H

#include "comm/core/communicator.h"

/* A receive from any rank finds its sender, and is one like any other. [progress] */
bool rpi_p2p_bind(rp_request *request);
/* The frame at the head of the link says that its rank has something to send. [progress] */
void rpi_p2p_receive_rts(rp_comm *comm, int rank, const rpi_frame_header *header);

#endif
