/* One TCP connection that carries frames, in TLS where the job asks for it: what is queued to
 * go out and what has come in. Bytes of a link are counted as they are before that.
 *
 * Urgent frames pass those that have not begun to go; the order in which frames go is that in
 * which they come, so that a receiver knows nothing of it.
 *
 * Where a link is several of them (tcp_multistream.h) each frame goes behind its number in the
 * link, in 8 bytes.
 *
 *     out   OPEN <---- the kernel takes no more, and again ----> FULL
 *            '-- sending has failed, or another stream has --> ENDED <--'
 *
 *     in    DRY <---- an event; the kernel has no more ----> READY
 *            '-- the peer's end is closed ---> LAST <--------'
 *                  read until the very end       '--> ENDED, the fault says why
 *
 *     goes  NONE ---- bytes of it have gone, or TLS has sealed some ----> FIRST or OTHER, which
 *                                                       nothing passes before all of it has
 *
 * Any state of `in` may come to ENDED by bytes that are no frame. A stream whose sending has
 * failed is still read: what had come before counts. */
#ifndef RPI_NET_TCP_STREAM_STATE_H
#define RPI_NET_TCP_STREAM_STATE_H

#include "net/bytes/ring_allocator.h"
#include "net/bytes/sticky_error.h"
#include "net/link/transport.h"
#include "net/trust/channel.h"

enum { RPI_TCP_AHEAD_BYTES = 4096 };

/* A numbered frame is reserved after this much room, at whose end its number is: both are sent
 * as one piece, and the frame is aligned. */
enum { RPI_TCP_NUMBER_ROOM = RPI_RING_ALIGNMENT, RPI_TCP_NUMBER_BYTES = 8 };

typedef enum rpi_tcp_out {
    RPI_TCP_OUT_OPEN,
    RPI_TCP_OUT_FULL, /* until an event says that the kernel has room */
    RPI_TCP_OUT_ENDED /* nothing more is sent */
} rpi_tcp_out;

typedef enum rpi_tcp_in {
    RPI_TCP_IN_DRY,   /* nothing is there until an event says so */
    RPI_TCP_IN_READY, /* the kernel may have something */
    RPI_TCP_IN_LAST,  /* the peer's end is closed: it is still read until the end */
    RPI_TCP_IN_ENDED  /* nothing more will arrive; the sticky error says why */
} rpi_tcp_in;

typedef enum rpi_tcp_goes {
    RPI_TCP_GOES_NONE,
    RPI_TCP_GOES_FIRST,
    RPI_TCP_GOES_OTHER
} rpi_tcp_goes;

/* Frames that are sent in the order in which they were committed. */
typedef struct rpi_tcp_lane {
    unsigned char *bytes;
    rpi_ring_allocator queue; /* committed frames, from the one being sent on */
    rpi_ring_region reserved; /* bytes 0: nothing is */
    size_t starved;           /* bytes for which the last reserve() found no room; 0: none */
} rpi_tcp_lane;

typedef struct rpi_tcp_stream {
    rpi_link *link; /* whose bytes are counted */
    rpi_channel channel;
    size_t frame_bytes;
    bool numbered;   /* frames are */
    bool was_closed; /* the error is that the peer has closed it */
    rpi_sticky_error sticky;

    rpi_tcp_out out;
    rpi_tcp_lane first;      /* urgent frames, which are sent before all that are not partly
                              * sent */
    rpi_tcp_lane others;     /* all where frames are numbered */
    rpi_tcp_goes goes;       /* the lane of which a frame is partly sent */
    size_t sent;             /* bytes of it that the kernel has taken; with TLS perhaps 0 */
    uint64_t posted, queued; /* bytes of all of the others, and of those in the queue */
    size_t bulk_starved;     /* as `starved`, of bulk */
    bool is_short;           /* since the first bulk: the kernel keeps little unsent */

    rpi_tcp_in in;
    unsigned char *in_bytes;
    rpi_ring_allocator frames;          /* complete frames, and the incomplete one */
    uint32_t numbers[RPI_RING_REGIONS]; /* of these, by their index modulo RPI_RING_REGIONS */
    uint32_t last_number;               /* of the last frame that arrived; numbers rise */
    bool has_number;                    /* one has come */
    size_t missing; /* missing bytes of the newest; 0: all frames are complete */
    bool held;      /* the oldest is looked at */
    bool full;      /* the next frame has no room until one is released */
    unsigned char ahead[RPI_TCP_AHEAD_BYTES]; /* bytes read beyond the incomplete frame */
    size_t ahead_bytes;
} rpi_tcp_stream;

/* Bytes of the number before a frame; 0: it has none. */
static inline size_t rpi_tcp_stream_number_bytes(const rpi_tcp_stream *stream) {
    return stream->numbered ? RPI_TCP_NUMBER_BYTES : 0;
}
/* Some committed bytes have not been taken by the kernel. */
static inline bool rpi_tcp_stream_has_queue(const rpi_tcp_stream *stream) {
    return stream->others.queue.count > 0 || stream->first.queue.count > 0;
}
/* The oldest frame is complete. */
static inline bool rpi_tcp_stream_has_frame(const rpi_tcp_stream *stream) {
    return stream->frames.count > (stream->missing > 0 ? 1U : 0U);
}
/* Of the oldest frame, complete or not; there is one. */
static inline uint32_t rpi_tcp_stream_number(const rpi_tcp_stream *stream) {
    return stream->numbers[stream->frames.first % RPI_RING_REGIONS];
}
/* The kernel may have bytes for which there is room. */
static inline bool rpi_tcp_stream_may_receive(const rpi_tcp_stream *stream) {
    return !stream->full && (stream->in == RPI_TCP_IN_READY || stream->in == RPI_TCP_IN_LAST);
}
/* The kernel takes committed bytes. */
static inline bool rpi_tcp_stream_may_send(const rpi_tcp_stream *stream) {
    return stream->out == RPI_TCP_OUT_OPEN && rpi_tcp_stream_has_queue(stream);
}

#endif
