/* The end of an action of a chunk, and what may run behind it. [driver] */
#ifndef RPI_COMM_CHUNK_STEPS_H
#define RPI_COMM_CHUNK_STEPS_H

#include "comm/core/chunk.h"

void rpi_chunk_finish(rpi_chunk *chunk, int action);
/* A SEND's frame is posted: later frames to that peer may follow. */
void rpi_chunk_let_sends_follow(rpi_chunk *chunk, int action);

#endif
