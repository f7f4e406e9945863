/* Sends whose payload stays in a buffer of the caller's, where the receiver reads it. */
#ifndef RPI_COMM_IN_PLACE_H
#define RPI_COMM_IN_PLACE_H

#include "comm/core/chunk.h"

/* Whether some other rank of the communicator reads payloads in buffers in place. comm NULL:
 * none does. Any thread. */
bool rpi_comm_reads_in_place(const rp_comm *comm);

/* ---- [progress] ---- */

/* The address of a SEND's payload, if its receiver can read it there; NULL: it is copied. */
const void *rpi_in_place_payload(const rpi_chunk *chunk, const rpi_instruction *send,
                                 size_t bytes);
/* The header of such a frame is sealed in the region: it is sent. The SEND is not finished
 * before rpi_in_place_is_completed(). */
rp_status rpi_in_place_commit(rpi_chunk *chunk, const rpi_instruction *send,
                              const void *payload, size_t bytes);
bool rpi_in_place_any_in_use(const rpi_chunk *chunk); /* something in it */
bool rpi_in_place_is_completed(const rpi_chunk *chunk, int instruction);
/* The sum of a fold is written over the frame that it adds: the place for that, until
 * rpi_in_place_end_write(); NULL: there is none. */
void *rpi_in_place_begin_write(const rpi_chunk *chunk, const rpi_instruction *fold,
                               const rpi_instruction *send);
void rpi_in_place_end_write(const rpi_chunk *chunk, const rpi_instruction *send);
/* Whether this RECV's frame may be one that was written over a payload of this rank. */
bool rpi_in_place_may_be_written(const rpi_chunk *chunk, const rpi_instruction *recv);
/* The chunk ends early: payloads that are still in use are revoked. */
void rpi_in_place_revoke(rpi_chunk *chunk);
/* Whether the encoded slots that an instruction has read were not revoked. */
bool rpi_in_place_is_valid(const rpi_chunk *chunk, const rpi_instruction *instruction);

#endif
