/* How senders learn that chunks have started at their receivers: they request a CTS, receivers
 * send it, senders note it (flow.c has the picture). For kinds that need it
 * (rpi_operation_kind.needs_cts). [progress] */
#ifndef RPI_COMM_CLEAR_TO_SEND_H
#define RPI_COMM_CLEAR_TO_SEND_H

#include "comm/core/chunk.h"

/* The receiver of a SEND has started its chunk. */
bool rpi_cts_has_come(const rpi_chunk *chunk, const rpi_instruction *instruction);
/* Ask, once. RP_PENDING. */
rp_status rpi_cts_await(rp_request *request, int rank, uint32_t chunk);
/* A frame of this chunk has left: its receiver need not be told. */
void rpi_cts_note_sent(rp_request *request, int rank, uint32_t chunk);
/* A frame shows that its sender has started its chunk, wherever the frame still is. */
void rpi_cts_note_started(rp_request *request, int rank, const rpi_frame_header *header);
/* `rank` wants to be told of this request's chunks. */
void rpi_cts_note_request(rp_request *request, int rank);
/* Tell ranks that wait for it which chunks have started; `moved`: more will soon. */
void rpi_cts_send(rp_request *request, bool moved);
/* RPI_FRAME_CTS_REQUEST and RPI_FRAME_CTS. */
void rpi_cts_receive_request(rp_comm *comm, int rank, const rpi_frame_header *header);
void rpi_cts_receive(rp_comm *comm, int rank, const rpi_frame_header *header);
/* "rank 1 told of the start of operation 5, which cannot be": reported. */
void rpi_flow_fail_strange(rp_comm *comm, int rank, const char *what,
                           const rpi_frame_header *header);

#endif
