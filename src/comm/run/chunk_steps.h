/* The end of an instruction of a chunk, and what may run behind it. [progress] */
#ifndef RPI_COMM_CHUNK_STEPS_H
#define RPI_COMM_CHUNK_STEPS_H

#include "comm/core/chunk.h"

void rpi_chunk_finish(rpi_chunk *chunk, int instruction);
/* A SEND's frame is posted: later frames to that peer may follow. */
void rpi_chunk_let_sends_follow(rpi_chunk *chunk, int instruction);

#endif
