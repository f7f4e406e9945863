/* Where a frame of an operation goes: to its chunk, there to the RECV that is due, and into
 * that RECV's encoded slot. [progress] */
#ifndef RPI_COMM_FRAME_PLACE_H
#define RPI_COMM_FRAME_PLACE_H

#include "comm/core/chunk.h"
#include "comm/core/frame_buffers.h"

/* Its chunk. RP_PENDING: it has not started here. Any other failure has been reported. */
rp_status rpi_frame_find_chunk(rp_comm *comm, int rank, const rpi_frame_header *header,
                               rpi_chunk **out_chunk);
/* The RECV for the next frame of this chunk from this rank; RP_PENDING: it is not due. payload
 * NULL: it was written over a payload of this rank. */
rp_status rpi_frame_find_recv(rpi_chunk *chunk, int rank, const rpi_frame_header *header,
                              const void *payload, size_t bytes, int *out_instruction);
/* The RECV has its frame. Returns the encoded slot, which its caller points at the frame; NULL:
 * nothing reads it. */
rpi_encoded_slot *rpi_frame_finish_recv(rpi_chunk *chunk, int rank, int index);
/* The weight of a neighbour's vector: it precedes the payload. */
double rpi_frame_edge_weight(const rp_request *request, const void *payload);
/* The encoded slot gets a frame that has left its link. */
void rpi_frame_fill_slot(const rp_request *request, rpi_encoded_slot *encoded_slot,
                         rpi_frame_buffer *buffer);
/* The frame waits in its chunk, which has started, until its RECV is due. */
void rpi_frame_place_unexpected(rpi_chunk *chunk, int rank, rpi_frame_buffer *buffer);

#endif
