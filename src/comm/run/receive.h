/* Frames to the RECV steps that wait for them. Functions that return bool say whether something
 * moved. [progress] */
#ifndef RPI_COMM_RECEIVE_H
#define RPI_COMM_RECEIVE_H

#include "comm/core/chunk.h"

/* receive.c: take what can be taken from a link. */
bool rpi_receive(rpi_context *context, int rank);

/* ---- link_heads.c ---- */

bool rpi_unexpected_queue(rpi_context *context); /* copy what blocks links, before sleeping */
/* The same of what has blocked its link for a while, while other operations move. */
void rpi_unexpected_queue_overdue(rpi_context *context);
/* Of a chunk in which nothing runs: the other side may wait for a payload that it holds, and
 * this one for its own. */
void rpi_receive_unblock(rpi_chunk *chunk);

/* ---- unexpected_claim.c ---- */

/* For a RECV that is due: the frame for it that was queued as unexpected. */
bool rpi_receive_unexpected(rpi_chunk *chunk, int instruction);
/* The chunk has started: what was queued as unexpected for it is its own. */
void rpi_receive_claim(rpi_chunk *chunk);
/* The chunk is done: nothing more may have come for it; makes it known. */
void rpi_receive_check_empty(rpi_chunk *chunk);
/* The request was posted: what was queued as unexpected for it is compared. False: it
 * disagrees. */
bool rpi_receive_compare(rp_request *request);

#endif
