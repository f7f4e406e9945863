/* Wire slots of a chunk: given back when their last reader has run. */
#include "comm/core/chunk.h"
#include "comm/core/communicator.h"
#include "comm/core/frame_blocks.h"
#include "comm/parts/parts.h"

#include "comm/device/device.h"

void rpi_wire_empty(rpi_chunk *chunk, int slot) {
    rpi_wire *wire = &chunk->wires[slot];
    rp_comm *comm = chunk->request->comm;
    if (wire->state == RPI_WIRE_FRAME) rpi_port_release(comm->peers[wire->peer].port);
    if (wire->state == RPI_WIRE_BLOCK) rpi_block_give(comm->fabric, wire->block);
    if (wire->state == RPI_WIRE_PINNED) rpi_device_wire_give(chunk, slot);
    wire->state = RPI_WIRE_EMPTY;
}

void rpi_wire_read(rpi_chunk *chunk, int slot) {
    rpi_wire *wire = &chunk->wires[slot];
    if (wire->readers) wire->readers--;
    if (!wire->readers) rpi_wire_empty(chunk, slot);
}
