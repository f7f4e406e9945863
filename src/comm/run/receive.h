/* Frames for the RECV steps that wait for them. Functions that return bool say whether
 * something moved. [progress] */
#ifndef RPI_COMM_RECEIVE_H
#define RPI_COMM_RECEIVE_H

#include "comm/core/chunk.h"

/* receive.c: take the frames of a link that can be taken. */
bool rpi_receive(rpi_context *context, int rank);

/* ---- link_heads.c ---- */

bool rpi_unexpected_queue(rpi_context *context); /* copy frames that block links, before
                                                  * sleeping */
/* The same of what has blocked its link for a while, while other operations move. */
void rpi_unexpected_queue_overdue(rpi_context *context);
/* Call this for a chunk in which nothing runs: it copies payloads that are read in place,
 * because the other side may wait for their release while this side waits for that of its own.
 */
void rpi_receive_unblock(rpi_chunk *chunk);

/* ---- unexpected_claim.c ---- */

/* For a RECV that is due: its frame in the unexpected queue. */
bool rpi_receive_unexpected(rpi_chunk *chunk, int instruction);
/* The chunk has started: frames queued as unexpected for it become its own. */
void rpi_receive_claim(rpi_chunk *chunk);
/* The chunk is done: no further frame may have come for it; reports one. */
void rpi_receive_check_empty(rpi_chunk *chunk);
/* The request was posted: frames queued as unexpected for it are compared. False: one
 * disagrees. */
bool rpi_receive_compare(rp_request *request);

#endif
