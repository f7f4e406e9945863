/* What the two sides of a send and its receive say to each other. */
#ifndef RPI_COMM_PAIR_PROTOCOL_H
#define RPI_COMM_PAIR_PROTOCOL_H

#include "comm/core/communicator.h"

/* A receive from any rank that has not found its sender. */
bool rpi_p2p_is_unbound(const rp_request *request);
/* A send or receive whose other side has not been heard of. [progress] */
bool rpi_p2p_is_alone(const rp_request *request);
/* Say that a send is here, unless its receiver has asked for it; true: done. [progress] */
bool rpi_p2p_send_rts(const rp_request *request);
/* A receive from any rank finds its sender, and is one like any other. [progress] */
bool rpi_p2p_bind(rp_request *request);
/* The frame at the head of the link says that its rank has something to send. [progress] */
void rpi_p2p_receive_rts(rp_comm *comm, int rank, const rpi_frame_header *header);
/* The sender has announced the message that this receive is for. [progress] */
bool rpi_p2p_has_rts(const rp_request *request);
/* Of a frame that belongs to no operation here: it is a receiver's RTR, its send comes later.
 */
bool rpi_p2p_is_future(const rp_comm *comm, int rank, const rpi_frame_header *header);

#endif
