#include "net/tcp/tcp_in.h"

#include "base/states.h"
#include "net/bytes/endian.h"
#include "net/bytes/frame.h"
#include "net/socket/lost.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

static const rpi_states in_next[] = {
    [RPI_TCP_IN_DRY] =
        RPI_STATE(RPI_TCP_IN_READY) | RPI_STATE(RPI_TCP_IN_LAST) | RPI_STATE(RPI_TCP_IN_ENDED),
    [RPI_TCP_IN_READY] =
        RPI_STATE(RPI_TCP_IN_DRY) | RPI_STATE(RPI_TCP_IN_LAST) | RPI_STATE(RPI_TCP_IN_ENDED),
    [RPI_TCP_IN_LAST] =
        RPI_STATE(RPI_TCP_IN_DRY) | RPI_STATE(RPI_TCP_IN_LAST) | RPI_STATE(RPI_TCP_IN_ENDED),
    [RPI_TCP_IN_ENDED] = 0,
};

void rpi_tcp_stream_hang_up(rpi_tcp_stream *stream) {
    if (stream->in != RPI_TCP_IN_ENDED) RPI_ENTER(in_next, stream->in, RPI_TCP_IN_LAST);
}

void rpi_tcp_stream_note_readable(rpi_tcp_stream *stream) {
    if (stream->in == RPI_TCP_IN_DRY) RPI_ENTER(in_next, stream->in, RPI_TCP_IN_READY);
}

rp_status rpi_tcp_stream_keep_errno(rpi_tcp_stream *stream, const char *doing) {
    int peer = stream->link->peer;
    stream->was_closed = errno == EPIPE || errno == ECONNRESET;
    rp_status status =
        stream->was_closed
            ? RP_FAIL(PEER, "%s: rank %d closed the connection (%s)", rpi_lost_text(errno),
                      peer, doing)
            : RP_FAIL_ERRNO(PEER, "the connection to rank %d failed (%s)", peer, doing);
    return rpi_sticky_error_keep(&stream->sticky, status);
}

static void fail(rpi_tcp_stream *stream, rp_status status) {
    rpi_sticky_error_keep(&stream->sticky, status);
    RPI_ENTER(in_next, stream->in, RPI_TCP_IN_ENDED);
}

/* Numbers rise on each stream; the link decides which of them comes next. */
static rp_status read_number(rpi_tcp_stream *stream, const unsigned char *at,
                             uint32_t *out_number) {
    *out_number = 0;
    if (!stream->numbered) return RP_OK;
    *out_number = rpi_get_u32(at);
    if (rpi_get_u32(at + 4) != rpi_crc32c(0, at, 4))
        return RP_FAIL(CORRUPT, "a frame's number is damaged");
    if (stream->has_number && (int32_t)(*out_number - stream->last_number) <= 0)
        return RP_FAIL(CORRUPT, "frame %u of the link comes behind frame %u", *out_number,
                       stream->last_number);
    return RP_OK;
}

/* A frame begins in `ahead`: give it a place. False if it cannot be taken yet, or ever. */
static bool begin_frame(rpi_tcp_stream *stream, const unsigned char *at) {
    rpi_frame_header header;
    rpi_ring_region frame;
    uint32_t number;
    rp_status status = read_number(stream, at, &number);
    if (status == RP_OK)
        status = rpi_frame_header_read(at + rpi_tcp_stream_number_bytes(stream), &header);
    if (status == RP_OK && header.bytes > stream->frame_bytes - RPI_FRAME_HEADER_BYTES)
        status = RP_FAIL(CORRUPT, "a frame says %u bytes of payload; %zu are allowed",
                         header.bytes, stream->frame_bytes - RPI_FRAME_HEADER_BYTES);
    if (status != RP_OK) {
        fail(stream, rpi_fail_context(status, "from rank %d: ", stream->link->peer));
        return false;
    }
    frame.bytes = RPI_FRAME_HEADER_BYTES + header.bytes;
    stream->full = !rpi_ring_allocator_fit(&stream->frames, frame.bytes, &frame.offset);
    if (stream->full) return false;
    stream->numbers[(stream->frames.first + stream->frames.count) % RPI_RING_REGIONS] = number;
    stream->last_number = number;
    stream->has_number = true;
    rpi_ring_allocator_push(&stream->frames, frame.offset, frame.bytes);
    stream->missing = frame.bytes;
    return true;
}

/* Where the next byte of the incomplete frame goes. */
static unsigned char *tail(rpi_tcp_stream *stream) {
    const rpi_ring_region *frame =
        rpi_ring_allocator_at(&stream->frames, stream->frames.count - 1);
    return stream->in_bytes + frame->offset + frame->bytes - stream->missing;
}

/* Divide bytes that were read ahead into frames; the rest is less than a header, or has no
 * room. */
static void deal(rpi_tcp_stream *stream) {
    const unsigned char *at = stream->ahead, *end = at + stream->ahead_bytes;
    for (;;) {
        size_t left = (size_t)(end - at);
        size_t bytes = left < stream->missing ? left : stream->missing;
        if (bytes > 0) memcpy(tail(stream), at, bytes);
        stream->missing -= bytes;
        at += bytes;
        if ((size_t)(end - at) < RPI_FRAME_HEADER_BYTES + rpi_tcp_stream_number_bytes(stream) ||
            !begin_frame(stream, at))
            break;
        at += rpi_tcp_stream_number_bytes(stream);
    }
    stream->ahead_bytes = (size_t)(end - at);
    memmove(stream->ahead, at, stream->ahead_bytes);
}

static void end_of_stream(rpi_tcp_stream *stream) {
    int peer = stream->link->peer;
    stream->was_closed = true;
    if (stream->missing > 0)
        fail(stream, RP_FAIL(PEER,
                             "connection closed by peer: rank %d closed the connection in "
                             "mid-frame, %zu bytes short",
                             peer, stream->missing));
    else if (stream->ahead_bytes > 0)
        fail(stream,
             RP_FAIL(PEER,
                     "connection closed by peer: rank %d closed the connection in mid-header, "
                     "%zu bytes short",
                     peer,
                     RPI_FRAME_HEADER_BYTES + rpi_tcp_stream_number_bytes(stream) -
                         stream->ahead_bytes));
    else
        fail(stream,
             RP_FAIL(PEER, "connection closed by peer: rank %d closed the connection", peer));
}

/* One read: the rest of the incomplete frame directly to its place, and the bytes after it
 * ahead. */
void rpi_tcp_stream_receive(rpi_tcp_stream *stream) {
    struct iovec pieces[2] = {
        {stream->missing ? tail(stream) : NULL, stream->missing},
        {stream->ahead + stream->ahead_bytes, sizeof stream->ahead - stream->ahead_bytes}};
    size_t wanted = pieces[0].iov_len + pieces[1].iov_len;
    ssize_t got = rpi_channel_receive_pieces(&stream->channel, pieces, 2);
    if (got == 0) {
        end_of_stream(stream);
        return;
    }
    if (got < 0) {
        if (errno == EAGAIN)
            RPI_ENTER(in_next, stream->in, RPI_TCP_IN_DRY);
        else if (errno != EINTR)
            fail(stream, rpi_tcp_stream_keep_errno(stream, "receiving"));
        return;
    }
    rpi_link_count_received(stream->link, (size_t)got);
    /* Less than asked for: the kernel has no more. TLS may keep the rest of a record. */
    if ((size_t)got < wanted && stream->in == RPI_TCP_IN_READY && !stream->channel.tls)
        RPI_ENTER(in_next, stream->in, RPI_TCP_IN_DRY);
    size_t direct = (size_t)got < stream->missing ? (size_t)got : stream->missing;
    stream->missing -= direct;
    stream->ahead_bytes += (size_t)got - direct;
    deal(stream);
}

rp_status rpi_tcp_stream_peek(rpi_tcp_stream *stream, const void **out_frame,
                              size_t *out_bytes) {
    if (!rpi_tcp_stream_has_frame(stream))
        return stream->in == RPI_TCP_IN_ENDED ? rpi_sticky_error_raise(&stream->sticky)
                                              : RP_PENDING;
    const rpi_ring_region *frame = rpi_ring_allocator_at(&stream->frames, 0);
    stream->held = true;
    *out_frame = stream->in_bytes + frame->offset;
    *out_bytes = frame->bytes;
    return RP_OK;
}

void rpi_tcp_stream_release(rpi_tcp_stream *stream) {
    if (!stream->held) return;
    stream->held = false;
    rpi_ring_allocator_pop(&stream->frames);
    stream->full = false;
    if (stream->in != RPI_TCP_IN_ENDED) deal(stream);
}
