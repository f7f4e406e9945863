/* What neighbours say to each other of a round: who sends to whom, and what was left out. */
#ifndef RPI_COMM_ROUND_PROTOCOL_H
#define RPI_COMM_ROUND_PROTOCOL_H

#include "comm/core/communicator.h"

rp_status rpi_round_routine(rp_comm *comm, const rpi_neighborhood *hood, bool device,
                            rpi_routine **out_routine);
/* Does this rank wait for a vector of that one? Not: made known, with both ranks' lists.
 * [driver] */
bool rpi_round_expects(rp_request *request, int rank);
/* The same of what it sends. [driver] */
bool rpi_round_sends(rp_request *request, int rank);
/* "rank 2 sends its vector to rank 0, where that round is over": made known. [driver] */
void rpi_round_fail_passed(rp_comm *comm, int rank, uint64_t sequence, const char *does);
/* What came for rounds that this rank has left out, now that it is past them; false: made
 * known. [driver] */
bool rpi_rounds_check_passed(rp_comm *comm);
/* RPI_FRAME_EXPECT and RPI_FRAME_PASSED. [driver] */
void rpi_round_hear(rp_comm *comm, int rank, const rpi_frame_header *header);
/* Nothing has moved for `idle_ns`: sources that are late are told who waits. [driver] */
void rpi_rounds_expect(rp_comm *comm, int64_t idle_ns);
int64_t rpi_rounds_next_ns(const rp_comm *comm); /* when to look again */
void rpi_rounds_tell_passed(rp_comm *comm);      /* [driver] */

#endif
