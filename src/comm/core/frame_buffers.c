/* Memory for frames that are kept: those queued as unexpected, and encodings with more than one
 * reader. */
#include "comm/core/frame_buffers.h"
#include "comm/core/communicator.h"

#include "base/memory.h"

/* Sizes: 256 bytes, then four sizes for each doubling, so that no more than a fifth of a buffer
 * is unused. Free buffers are kept for the next frames up to a limit; the rest is freed. */
enum { SMALLEST = 256, KEPT_BYTES = 4 << 20 };

static size_t bytes_of(int size) {
    return ((size_t)SMALLEST << size / 4) * (size_t)(4 + size % 4) / 4;
}

static int size_of(size_t bytes) {
    if (bytes <= SMALLEST) return 0;
    int octave = 63 - __builtin_clzll((unsigned long long)bytes - 1) - 8;
    return 4 * octave + (int)((bytes - 1) >> (octave + 6) & 3) + 1;
}

rp_status rpi_frame_buffer_take(rpi_context *context, size_t bytes,
                                rpi_frame_buffer **out_buffer) {
    int size = size_of(bytes);
    rpi_frame_buffer *buffer = context->buffers[size];
    if (buffer) {
        context->buffers[size] = buffer->next;
        context->idle_buffer_bytes -= bytes_of(size);
    } else {
        RP_TRY(rpi_alloc(sizeof *buffer + bytes_of(size), "a frame", &buffer));
    }
    buffer->next = NULL;
    buffer->size = size;
    buffer->bytes = bytes;
    *out_buffer = buffer;
    return RP_OK;
}

void rpi_frame_buffer_give(rpi_context *context, rpi_frame_buffer *buffer) {
    if (context->idle_buffer_bytes + bytes_of(buffer->size) > KEPT_BYTES) {
        rpi_free(buffer);
        return;
    }
    context->idle_buffer_bytes += bytes_of(buffer->size);
    buffer->next = context->buffers[buffer->size];
    context->buffers[buffer->size] = buffer;
}

void rpi_frame_buffers_free(rpi_context *context) {
    for (int size = 0; size < RPI_FRAME_BUFFER_SIZES; size++)
        for (rpi_frame_buffer *buffer = context->buffers[size], *next; buffer; buffer = next) {
            next = buffer->next;
            rpi_free(buffer);
        }
}

/* ---- lists of them ---- */

void rpi_frames_append(rpi_frame_list *frames, rpi_frame_buffer *buffer) {
    buffer->next = NULL;
    if (frames->first)
        frames->last->next = buffer;
    else
        frames->first = buffer;
    frames->last = buffer;
}

rpi_frame_buffer *rpi_frames_pop(rpi_frame_list *frames) {
    rpi_frame_buffer *buffer = frames->first;
    frames->first = buffer->next;
    return buffer;
}

void rpi_frames_clear(rpi_context *context, rpi_frame_list *frames) {
    while (frames->first) rpi_frame_buffer_give(context, rpi_frames_pop(frames));
}
