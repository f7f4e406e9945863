/* Encoded slots of a chunk: freed when their last reader has run. */
#include "comm/core/chunk.h"
#include "comm/core/communicator.h"
#include "comm/core/frame_buffers.h"
#include "comm/parts/parts.h"

#include "comm/device/device.h"

void rpi_encoded_slot_empty(rpi_chunk *chunk, int slot) {
    rpi_encoded_slot *encoded_slot = &chunk->encoded_slots[slot];
    rp_comm *comm = chunk->request->comm;
    if (encoded_slot->state == RPI_ENCODED_FRAME)
        rpi_connection_release(comm->peers[encoded_slot->peer].connection);
    if (encoded_slot->state == RPI_ENCODED_BUFFER)
        rpi_frame_buffer_give(comm->context, encoded_slot->buffer);
    if (encoded_slot->state == RPI_ENCODED_PINNED) rpi_device_encoded_give(chunk, slot);
    encoded_slot->state = RPI_ENCODED_EMPTY;
}

void rpi_encoded_slot_read(rpi_chunk *chunk, int slot) {
    rpi_encoded_slot *encoded_slot = &chunk->encoded_slots[slot];
    if (encoded_slot->readers) encoded_slot->readers--;
    if (!encoded_slot->readers) rpi_encoded_slot_empty(chunk, slot);
}
