/* Memory for frames that have left their link: buffers by size class, kept for later frames,
 * and lists of them. */
#ifndef RPI_COMM_FRAME_BUFFERS_H
#define RPI_COMM_FRAME_BUFFERS_H

#include "comm/core/context.h"
#include "net/bytes/frame.h"

typedef struct rpi_frame_buffer {
    struct rpi_frame_buffer *next;
    int size;                /* its class: frame_buffers.c */
    rpi_frame_header header; /* of an unexpected frame */
    size_t bytes;            /* of payload */
    bool written;            /* which is not here: RPI_ENCODED_WRITTEN */
    _Alignas(64) unsigned char payload[];
} rpi_frame_buffer;

/* Frames in the order in which they came. */
typedef struct rpi_frame_list {
    rpi_frame_buffer *first, *last; /* last: valid only while there is a first */
} rpi_frame_list;

/* ---- all of it [progress] ---- */

rp_status rpi_frame_buffer_take(rpi_context *context, size_t bytes,
                                rpi_frame_buffer **out_buffer);
void rpi_frame_buffer_give(rpi_context *context, rpi_frame_buffer *buffer);
void rpi_frame_buffers_free(rpi_context *context); /* those not in use */
void rpi_frames_append(rpi_frame_list *frames, rpi_frame_buffer *buffer);
rpi_frame_buffer *rpi_frames_pop(rpi_frame_list *frames); /* there must be one */
void rpi_frames_clear(rpi_context *context, rpi_frame_list *frames);

#endif
