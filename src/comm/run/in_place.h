/* Sends whose payload stays in a buffer of the caller's, where the receiver reads it. */
#ifndef RPI_COMM_IN_PLACE_H
#define RPI_COMM_IN_PLACE_H

#include "comm/core/chunk.h"

/* Some other rank of the communicator reads what lies in a buffer where it lies. comm NULL:
 * none does. Any thread. */
bool rpi_comm_reads_in_place(const rp_comm *comm);

/* ---- [progress] ---- */

/* Where the payload of a SEND lies, when its receiver can read it there; NULL: it is copied. */
const void *rpi_in_place_payload(const rpi_chunk *chunk, const rpi_instruction *send,
                                 size_t bytes);
/* The header of such a frame has been sealed in the region: it leaves. The SEND is not finished
 * before rpi_in_place_is_completed(). */
rp_status rpi_in_place_commit(rpi_chunk *chunk, const rpi_instruction *send,
                              const void *payload, size_t bytes);
bool rpi_in_place_any_in_use(const rpi_chunk *chunk); /* something in it */
bool rpi_in_place_is_completed(const rpi_chunk *chunk, int instruction);
/* A fold's sum goes back to where what it adds came from: a place to write it to, until
 * rpi_in_place_end_write(); NULL: there is none. */
void *rpi_in_place_begin_write(const rpi_chunk *chunk, const rpi_instruction *fold,
                               const rpi_instruction *send);
void rpi_in_place_end_write(const rpi_chunk *chunk, const rpi_instruction *send);
/* This RECV's frame may be one whose payload was written into what was sent here. */
bool rpi_in_place_may_be_written(const rpi_chunk *chunk, const rpi_instruction *recv);
/* The chunk ends before its time: nobody takes what is still in use for what it was. */
void rpi_in_place_revoke(rpi_chunk *chunk);
/* What an instruction has read of its encoded slots is what was sent. */
bool rpi_in_place_is_valid(const rpi_chunk *chunk, const rpi_instruction *instruction);

#endif
