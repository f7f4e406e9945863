/* Memory for frames that have left their link: blocks by size class, kept for the next, and
 * lists of them. */
#ifndef RPI_COMM_FRAME_BLOCKS_H
#define RPI_COMM_FRAME_BLOCKS_H

#include "comm/core/fabric.h"
#include "net/bytes/frame.h"

typedef struct rpi_block {
    struct rpi_block *next;
    int size;                /* its class: frame_blocks.c */
    rpi_frame_header header; /* of a frame set aside */
    size_t bytes;            /* of payload */
    bool written;            /* which is not here: RPI_WIRE_THERE */
    _Alignas(64) unsigned char payload[];
} rpi_block;

/* Frames in the order in which they came. */
typedef struct rpi_frames {
    rpi_block *first, *last; /* last: of some use while there is a first */
} rpi_frames;

/* ---- all of it [driver] ---- */

rp_status rpi_block_take(rpi_fabric *fabric, size_t bytes, rpi_block **out_block);
void rpi_block_give(rpi_fabric *fabric, rpi_block *block);
void rpi_blocks_free(rpi_fabric *fabric); /* those not in use */
void rpi_frames_append(rpi_frames *frames, rpi_block *block);
rpi_block *rpi_frames_pop(rpi_frames *frames); /* there must be one */
void rpi_frames_clear(rpi_fabric *fabric, rpi_frames *frames);

#endif
