/* Memory for frames that are kept: those set aside, and encodings with more than one reader. */
#include "comm/core/frame_blocks.h"
#include "comm/core/communicator.h"

#include "base/memory.h"

/* Sizes: 256 bytes and then four an octave, so that no more than a fifth of a block is unused.
 * What is free is kept for the next frame, up to a limit: the rest goes back. */
enum { SMALLEST = 256, KEPT_BYTES = 4 << 20 };

static size_t bytes_of(int size) {
    return ((size_t)SMALLEST << size / 4) * (size_t)(4 + size % 4) / 4;
}

static int size_of(size_t bytes) {
    if (bytes <= SMALLEST) return 0;
    int octave = 63 - __builtin_clzll((unsigned long long)bytes - 1) - 8;
    return 4 * octave + (int)((bytes - 1) >> (octave + 6) & 3) + 1;
}

rp_status rpi_block_take(rpi_fabric *fabric, size_t bytes, rpi_block **out_block) {
    int size = size_of(bytes);
    rpi_block *block = fabric->blocks[size];
    if (block) {
        fabric->blocks[size] = block->next;
        fabric->idle_block_bytes -= bytes_of(size);
    } else {
        RP_TRY(rpi_alloc(sizeof *block + bytes_of(size), "a frame", &block));
    }
    block->next = NULL;
    block->size = size;
    block->bytes = bytes;
    *out_block = block;
    return RP_OK;
}

void rpi_block_give(rpi_fabric *fabric, rpi_block *block) {
    if (fabric->idle_block_bytes + bytes_of(block->size) > KEPT_BYTES) {
        rpi_free(block);
        return;
    }
    fabric->idle_block_bytes += bytes_of(block->size);
    block->next = fabric->blocks[block->size];
    fabric->blocks[block->size] = block;
}

void rpi_blocks_free(rpi_fabric *fabric) {
    for (int size = 0; size < RPI_BLOCK_SIZES; size++)
        for (rpi_block *block = fabric->blocks[size], *next; block; block = next) {
            next = block->next;
            rpi_free(block);
        }
}

/* ---- lists of them ---- */

void rpi_frames_append(rpi_frames *frames, rpi_block *block) {
    block->next = NULL;
    if (frames->first)
        frames->last->next = block;
    else
        frames->first = block;
    frames->last = block;
}

rpi_block *rpi_frames_pop(rpi_frames *frames) {
    rpi_block *block = frames->first;
    frames->first = block->next;
    return block;
}

void rpi_frames_clear(rpi_fabric *fabric, rpi_frames *frames) {
    while (frames->first) rpi_block_give(fabric, rpi_frames_pop(frames));
}
