/* Which frames may leave, and when (flow.c, docs/wire.md). */
#ifndef RPI_COMM_FLOW_H
#define RPI_COMM_FLOW_H

#include "comm/core/chunk.h"

void rpi_flow_init(rp_comm *comm);
void rpi_flow_close(rp_comm *comm);
size_t rpi_flow_promised(void); /* by this process, beyond the base */
/* Whether the frame of a SEND may leave, and as which kind. RP_PENDING: it may not yet, and its
 * receiver has been asked for a CTS. */
rp_status rpi_flow_admit(rpi_chunk *chunk, const rpi_instruction *instruction, size_t bytes,
                         uint8_t *out_kind);
void rpi_flow_sent(const rpi_chunk *chunk, const rpi_instruction *instruction, size_t bytes,
                   uint8_t kind);
/* A SEND at its turn waits for a control frame from its receiver, or for its payload. */
bool rpi_flow_is_deferred(const rpi_chunk *chunk, const rpi_instruction *instruction);
/* A frame with a payload of `bytes` has come; RP_CORRUPT (reported): it should not have. */
rp_status rpi_flow_come(rp_comm *comm, int rank, const rpi_frame_header *header, size_t bytes);
/* The chunk of that frame has started here. */
void rpi_flow_placed(rp_request *request, int rank, const rpi_frame_header *header,
                     size_t bytes);
/* RPI_FRAME_CTS_REQUEST and RPI_FRAME_CREDIT. */
void rpi_flow_receive_cts_request(rp_comm *comm, int rank, const rpi_frame_header *header);
void rpi_flow_receive_credit(rp_comm *comm, int rank, const rpi_frame_header *header);
void rpi_flow_send_credit(rp_comm *comm); /* how many more eager bytes ranks may send */

#endif
