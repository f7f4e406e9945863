#include "net/tcp/tcp_out.h"

#include "base/states.h"
#include "net/bytes/endian.h"
#include "net/bytes/frame.h"
#include "net/tcp/tcp_in.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { PIECES = 16 };

/* How many unsent bytes the kernel keeps if bulk leaves room for others: enough to send until
 * this process is woken, and as many as take a millisecond at 1 Gbit/s. */
enum { UNSENT_BYTES = 128 * 1024 };

static const rpi_states out_next[] = {
    [RPI_TCP_OUT_OPEN] = RPI_STATE(RPI_TCP_OUT_FULL) | RPI_STATE(RPI_TCP_OUT_ENDED),
    [RPI_TCP_OUT_FULL] = RPI_STATE(RPI_TCP_OUT_OPEN) | RPI_STATE(RPI_TCP_OUT_ENDED),
    [RPI_TCP_OUT_ENDED] = 0,
};

static const rpi_states goes_next[] = {
    [RPI_TCP_GOES_NONE] = RPI_STATE(RPI_TCP_GOES_NONE) | RPI_STATE(RPI_TCP_GOES_FIRST) |
                          RPI_STATE(RPI_TCP_GOES_OTHER),
    [RPI_TCP_GOES_FIRST] = RPI_STATE(RPI_TCP_GOES_NONE) | RPI_STATE(RPI_TCP_GOES_FIRST),
    [RPI_TCP_GOES_OTHER] = RPI_STATE(RPI_TCP_GOES_NONE) | RPI_STATE(RPI_TCP_GOES_OTHER),
};

static size_t room_before(const rpi_tcp_stream *stream) {
    return stream->numbered ? RPI_TCP_NUMBER_ROOM : 0;
}

/* ---- what the kernel takes ---- */

/* Whose oldest frame goes now. */
static rpi_tcp_lane *lane_that_goes(rpi_tcp_stream *stream) {
    bool is_first = stream->goes == RPI_TCP_GOES_NONE ? stream->first.queue.count > 0
                                                      : stream->goes == RPI_TCP_GOES_FIRST;
    return is_first ? &stream->first : &stream->others;
}

/* A frame of this lane is partly sent. */
static void begin(rpi_tcp_stream *stream, const rpi_tcp_lane *lane) {
    RPI_ENTER(goes_next, stream->goes,
              lane == &stream->first ? RPI_TCP_GOES_FIRST : RPI_TCP_GOES_OTHER);
}

/* Pieces that are to be sent with one call. */
typedef struct to_send {
    struct iovec at[PIECES];
    int count;
    size_t skip; /* bytes of the next that the kernel has taken */
} to_send;

/* Frames of one lane, from one index to another. Bytes before a frame's number are not sent. */
static void add(const rpi_tcp_stream *stream, rpi_tcp_lane *lane, uint32_t from, uint32_t until,
                to_send *p) {
    size_t lead = room_before(stream) - rpi_tcp_stream_number_bytes(stream);
    for (uint32_t i = from; i < until && p->count < PIECES; i++) {
        const rpi_ring_region *frame = rpi_ring_allocator_at(&lane->queue, i);
        size_t skip = lead + p->skip;
        p->at[p->count++] =
            (struct iovec){lane->bytes + frame->offset + skip, frame->bytes - skip};
        p->skip = 0;
    }
}

/* Frames are aligned, with gaps between them: gathered, so that one call sends many. In this
 * order: the one that is partly sent, all urgent ones, the others. */
static void gather(rpi_tcp_stream *stream, to_send *p) {
    rpi_tcp_lane *first = &stream->first, *others = &stream->others;
    uint32_t count = others->queue.count;
    uint32_t begun = lane_that_goes(stream) == first ? 0 : 1;
    *p = (to_send){.skip = stream->sent};
    add(stream, others, 0, begun < count ? begun : count, p);
    add(stream, first, 0, first->queue.count, p);
    add(stream, others, begun, count, p);
}

/* The kernel has taken the rest of it. */
static void end(rpi_tcp_stream *stream, rpi_tcp_lane *lane, size_t left) {
    bool is_first = lane == &stream->first;
    if (!is_first) stream->queued -= stream->sent + left;
    if (!is_first && !stream->numbered) stream->link->settled++;
    stream->sent = 0;
    RPI_ENTER(goes_next, stream->goes, RPI_TCP_GOES_NONE);
    rpi_ring_allocator_pop(&lane->queue);
}

/* The kernel has taken this many more bytes, in that order. */
static void take_sent(rpi_tcp_stream *stream, size_t bytes) {
    size_t lead = room_before(stream) - rpi_tcp_stream_number_bytes(stream);
    rpi_link_count_sent(stream->link, bytes);
    while (bytes > 0) {
        rpi_tcp_lane *lane = lane_that_goes(stream);
        size_t left = rpi_ring_allocator_at(&lane->queue, 0)->bytes - lead - stream->sent;
        if (bytes < left) {
            stream->sent += bytes;
            begin(stream, lane);
            return;
        }
        bytes -= left;
        end(stream, lane, left);
    }
}

/* The kernel takes no more. TLS has encrypted the bytes that it was given first, so they stay
 * first. */
static void wait_for_kernel(rpi_tcp_stream *stream) {
    RPI_ENTER(out_next, stream->out, RPI_TCP_OUT_FULL);
    if (stream->channel.tls) begin(stream, lane_that_goes(stream));
}

void rpi_tcp_stream_mute(rpi_tcp_stream *stream) {
    if (stream->out != RPI_TCP_OUT_ENDED) RPI_ENTER(out_next, stream->out, RPI_TCP_OUT_ENDED);
}

void rpi_tcp_stream_note_writable(rpi_tcp_stream *stream) {
    if (stream->out == RPI_TCP_OUT_FULL) RPI_ENTER(out_next, stream->out, RPI_TCP_OUT_OPEN);
}

void rpi_tcp_stream_send(rpi_tcp_stream *stream) {
    to_send p;
    while (rpi_tcp_stream_may_send(stream)) {
        gather(stream, &p);
        ssize_t sent = rpi_channel_send_pieces(&stream->channel, p.at, p.count);
        if (sent < 0) {
            if (errno == EAGAIN)
                wait_for_kernel(stream);
            else if (errno != EINTR) {
                rpi_tcp_stream_keep_errno(stream, "sending");
                rpi_tcp_stream_mute(stream);
                rpi_tcp_stream_hang_up(stream); /* read what had come */
            }
            continue;
        }
        take_sent(stream, (size_t)sent);
    }
}

/* ---- what is committed ---- */

/* A region of this lane, after this much room. */
static rp_status reserve(rpi_tcp_stream *stream, rpi_tcp_lane *lane, size_t room, size_t bytes,
                         void **out_region) {
    if (bytes == 0 || bytes > stream->frame_bytes)
        return RP_FAIL(INVALID, "a frame of %zu bytes; 1 to %zu are allowed", bytes,
                       stream->frame_bytes);
    RP_TRY(rpi_sticky_error_raise(&stream->sticky));
    if (lane->reserved.bytes < bytes) {
        rpi_ring_region reserved = {.bytes = bytes};
        bool fits = rpi_ring_allocator_fit(&lane->queue, room + bytes, &reserved.offset);
        lane->starved = fits ? 0 : bytes;
        if (!fits) return RP_PENDING;
        lane->reserved = reserved;
    }
    *out_region = lane->bytes + lane->reserved.offset + room;
    return RP_OK;
}

rp_status rpi_tcp_stream_reserve(rpi_tcp_stream *stream, size_t bytes, void **out_region) {
    return reserve(stream, &stream->others, room_before(stream), bytes, out_region);
}

/* Only useful: if it is refused this is no failure. */
static void keep_short(rpi_tcp_stream *stream) {
    unsigned unsent = UNSENT_BYTES;
    if (stream->is_short) return;
    stream->is_short = true;
    (void)setsockopt(stream->channel.fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent,
                     sizeof unsent);
}

rp_status rpi_tcp_stream_reserve_bulk(rpi_tcp_stream *stream, size_t bytes, void **out_region) {
    keep_short(stream);
    stream->bulk_starved = rpi_tcp_stream_has_bulk_room(stream) ? 0 : bytes;
    if (stream->bulk_starved && stream->sticky.status == RP_OK) return RP_PENDING;
    return rpi_tcp_stream_reserve(stream, bytes, out_region);
}

rp_status rpi_tcp_stream_reserve_first(rpi_tcp_stream *stream, size_t bytes,
                                       void **out_region) {
    return reserve(stream, &stream->first, 0, bytes, out_region);
}

static rp_status check_post(const rpi_tcp_lane *lane, size_t bytes) {
    if (bytes > 0 && bytes <= lane->reserved.bytes) return RP_OK;
    return RP_FAIL(STATE, "%zu bytes posted into a region of %zu", bytes, lane->reserved.bytes);
}

/* At once, so that the network works while the next frame is encoded. */
static rp_status push(rpi_tcp_stream *stream, rpi_tcp_lane *lane, size_t bytes) {
    rpi_ring_allocator_push(&lane->queue, lane->reserved.offset, bytes);
    lane->reserved.bytes = 0;
    rpi_tcp_stream_send(stream);
    return rpi_sticky_error_raise(&stream->sticky);
}

rp_status rpi_tcp_stream_commit_first(rpi_tcp_stream *stream, size_t bytes) {
    RP_TRY(check_post(&stream->first, bytes));
    return push(stream, &stream->first, bytes);
}

static void write_number(unsigned char *at, uint32_t number) {
    rpi_put_u32(at, number);
    rpi_put_u32(at + 4, rpi_crc32c(0, at, 4));
}

rp_status rpi_tcp_stream_commit(rpi_tcp_stream *stream, size_t bytes, uint32_t number) {
    rpi_tcp_lane *lane = &stream->others;
    size_t room = room_before(stream);
    RP_TRY(check_post(lane, bytes));
    if (stream->numbered)
        write_number(lane->bytes + lane->reserved.offset + room - RPI_TCP_NUMBER_BYTES, number);
    else
        stream->link->passable++;
    stream->posted += bytes + rpi_tcp_stream_number_bytes(stream);
    stream->queued += bytes + rpi_tcp_stream_number_bytes(stream);
    return push(stream, lane, room + bytes);
}

bool rpi_tcp_stream_is_delivered(const rpi_tcp_stream *stream) {
    int unsent = 0;
    if (stream->sticky.status != RP_OK) return true; /* nobody is there to receive */
    if (rpi_tcp_stream_has_queue(stream)) return false;
    return ioctl(stream->channel.fd, SIOCOUTQNSD, &unsent) != 0 || unsent == 0;
}

bool rpi_tcp_stream_has_room(rpi_tcp_stream *stream, size_t bytes) {
    size_t offset;
    return rpi_ring_allocator_fit(&stream->others.queue, bytes + room_before(stream), &offset);
}

bool rpi_tcp_stream_has_bulk_room(const rpi_tcp_stream *stream) {
    return stream->queued <= stream->frame_bytes / 2;
}

bool rpi_tcp_stream_awaits_room(const rpi_tcp_stream *stream) {
    return stream->others.starved || stream->bulk_starved || stream->first.starved;
}

static bool has_first_room(rpi_tcp_stream *stream, size_t bytes) {
    size_t offset;
    return rpi_ring_allocator_fit(&stream->first.queue, bytes, &offset);
}

/* Reported once: a caller that waits for room asks for it again, or no longer waits. */
bool rpi_tcp_stream_room_has_come(rpi_tcp_stream *stream) {
    size_t others = stream->others.starved, first = stream->first.starved;
    bool some = (others && rpi_tcp_stream_has_room(stream, others)) ||
                (stream->bulk_starved && rpi_tcp_stream_has_bulk_room(stream)) ||
                (first && has_first_room(stream, first));
    if (some) stream->others.starved = stream->bulk_starved = stream->first.starved = 0;
    return some;
}
