/* The control frames of neighbours about a round: which rank sends to which, and which vectors
 * were left out. */
#ifndef RPI_COMM_EXCHANGE_PROTOCOL_H
#define RPI_COMM_EXCHANGE_PROTOCOL_H

#include "comm/core/communicator.h"

/* Whether this rank sends its vector to that one. If not, this is reported, with both ranks'
 * lists. [progress] */
bool rpi_exchange_sends(rp_request *request, int rank);
/* RPI_FRAME_PROBE and RPI_FRAME_REJECT. [progress] */
void rpi_exchange_receive(rp_comm *comm, int rank, const rpi_frame_header *header);
/* Call this when nothing has moved for `idle_ns`: it tells late sources that this rank waits
 * for them. [progress] */
void rpi_exchanges_probe(rp_comm *comm, int64_t idle_ns);
int64_t rpi_exchanges_next_ns(const rp_comm *comm); /* when to look again */
void rpi_exchanges_send_rejects(rp_comm *comm);     /* [progress] */

#endif
