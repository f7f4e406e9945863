/* One TCP connection that carries frames, in TLS where the job asks for it: what is queued to
 * go out and what has come in. Bytes of a link are counted as they are before that.
 *
 * Urgent frames pass those that have not begun to go; the order in which frames go is that in
 * which they come, so that a receiver knows nothing of it.
 *
 * Where a link is several of them (tcp_bundle.h) each frame goes behind its number in the
 * link, in 8 bytes. */
#ifndef RPI_NET_TCP_STREAM_H
#define RPI_NET_TCP_STREAM_H

#include "net/bytes/extents.h"
#include "net/bytes/fault.h"
#include "net/link/transport.h"
#include "net/trust/channel.h"

enum { RPI_TCP_AHEAD_BYTES = 4096, RPI_TCP_NUMBER_BYTES = 8 };

typedef struct rpi_tcp_stream {
    rpi_link *link; /* whose bytes are counted */
    rpi_channel channel;
    size_t frame_bytes;
    bool numbered;           /* frames are */
    bool mute;               /* nothing more is sent */
    bool readable, writable; /* since the last event, until the kernel said no */
    bool hung_up;            /* the peer's end is closed: read until the very end */
    bool was_closed;         /* the fault is that the peer has closed it */
    rpi_fault fault;

    unsigned char *out;
    rpi_extents queue; /* posted frames, from the one being sent on */
    unsigned char *first_out;
    rpi_extents first;       /* urgent ones, which go before all that has not begun to go */
    rpi_extent first_lent;   /* as `lent`, of these */
    size_t first_starved;    /* as `starved` */
    bool is_first;           /* the frame that has begun to go is one of these */
    bool is_promised;        /* it has begun although `sent` is 0: TLS has sealed part of it */
    size_t sent;             /* bytes of the one that goes that the kernel has taken */
    uint64_t posted, queued; /* bytes of all frames posted, and of those in the queue */
    rpi_extent lent;         /* bytes 0: nothing is */
    size_t starved;          /* bytes for which the last lend() found no room; 0: none */
    size_t bulk_starved;     /* the same of bulk */
    bool is_short;           /* since the first bulk: the kernel keeps little unsent */

    unsigned char *in;
    rpi_extents frames;            /* that have come, and the one that is coming */
    uint32_t numbers[RPI_EXTENTS]; /* of these, by their index modulo RPI_EXTENTS */
    uint32_t last_number;          /* of the frame that came last; numbers rise */
    bool has_number;               /* one has come */
    size_t missing; /* bytes of the newest still to come; 0: all frames are complete */
    bool held;      /* the oldest is looked at */
    bool ended;     /* nothing will come any more; the fault says why */
    bool full;      /* the next frame has no room until one is released */
    unsigned char ahead[RPI_TCP_AHEAD_BYTES]; /* read beyond the frame that is coming */
    size_t ahead_bytes;
} rpi_tcp_stream;

/* Takes over the connection, also when it fails; close() follows in either case. */
rp_status rpi_tcp_stream_open(rpi_tcp_stream *stream, rpi_link *link, rpi_channel channel,
                              size_t frame_bytes, bool numbered);
void rpi_tcp_stream_close(rpi_tcp_stream *stream);

/* As in the contract of a transport (transport.h). number: of the frame in its link, where
 * frames are numbered. */
rp_status rpi_tcp_stream_lend(rpi_tcp_stream *stream, size_t bytes, void **out_region);
/* The same of bulk: RP_PENDING while half of the longest frame waits for the kernel. */
rp_status rpi_tcp_stream_lend_bulk(rpi_tcp_stream *stream, size_t bytes, void **out_region);
/* The same of an urgent frame, where frames are not numbered; it is then posted as one. */
rp_status rpi_tcp_stream_lend_first(rpi_tcp_stream *stream, size_t bytes, void **out_region);
rp_status rpi_tcp_stream_post_first(rpi_tcp_stream *stream, size_t bytes);
rp_status rpi_tcp_stream_post(rpi_tcp_stream *stream, size_t bytes, uint32_t number);
rp_status rpi_tcp_stream_peek(rpi_tcp_stream *stream, const void **out_frame,
                              size_t *out_bytes);
void rpi_tcp_stream_release(rpi_tcp_stream *stream);
/* Events of epoll, edge-triggered. */
void rpi_tcp_stream_event(rpi_tcp_stream *stream, uint32_t events);
/* Send and receive what the kernel takes and has. */
void rpi_tcp_stream_move(rpi_tcp_stream *stream);
bool rpi_tcp_stream_has_news(rpi_tcp_stream *stream);
/* Is there room for so long a frame? */
bool rpi_tcp_stream_has_room(rpi_tcp_stream *stream, size_t bytes);
/* Little waits for the kernel, whatever length comes next: short frames would lose otherwise.
 */
bool rpi_tcp_stream_has_bulk_room(const rpi_tcp_stream *stream);
/* Something is posted that the kernel has not taken. */
static inline bool rpi_tcp_stream_has_queue(const rpi_tcp_stream *stream) {
    return stream->queue.count > 0 || stream->first.count > 0;
}
/* The oldest frame is complete. */
static inline bool rpi_tcp_stream_has_frame(const rpi_tcp_stream *stream) {
    return stream->frames.count > (stream->missing > 0 ? 1U : 0U);
}
/* Of the oldest frame, complete or not; there is one. */
static inline uint32_t rpi_tcp_stream_number(const rpi_tcp_stream *stream) {
    return stream->numbers[stream->frames.first % RPI_EXTENTS];
}

/* The kernel has nothing left to send. What it has is lost when the peer writes to a connection
 * that is closed: the kernel then answers with a reset. */
bool rpi_tcp_stream_is_delivered(const rpi_tcp_stream *stream);

#endif
