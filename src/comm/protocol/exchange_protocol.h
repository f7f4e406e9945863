/* What neighbours say to each other of a round: who sends to whom, and what was left out. */
#ifndef RPI_COMM_EXCHANGE_PROTOCOL_H
#define RPI_COMM_EXCHANGE_PROTOCOL_H

#include "comm/core/communicator.h"

rp_status rpi_exchange_compiled_schedule(rp_comm *comm, const rpi_neighborhood *neighborhood,
                                         bool device, rpi_compiled_schedule **out_compiled);
/* Does this rank wait for a vector of that one? Not: made known, with both ranks' lists.
 * [progress] */
bool rpi_exchange_expects(rp_request *request, int rank);
/* The same of what it sends. [progress] */
bool rpi_exchange_sends(rp_request *request, int rank);
/* "rank 2 sends its vector to rank 0, where that round is over": made known. [progress] */
void rpi_exchange_fail_over(rp_comm *comm, int rank, uint64_t sequence, const char *does);
/* What came for rounds that this rank has left out, now that it is past them; false: made
 * known. [progress] */
bool rpi_exchanges_check_over(rp_comm *comm);
/* RPI_FRAME_PROBE and RPI_FRAME_REJECT. [progress] */
void rpi_exchange_receive(rp_comm *comm, int rank, const rpi_frame_header *header);
/* Nothing has moved for `idle_ns`: sources that are late are told who waits. [progress] */
void rpi_exchanges_probe(rp_comm *comm, int64_t idle_ns);
int64_t rpi_exchanges_next_ns(const rp_comm *comm); /* when to look again */
void rpi_exchanges_send_rejects(rp_comm *comm);     /* [progress] */

#endif
