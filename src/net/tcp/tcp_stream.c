#include "net/tcp/tcp_stream.h"

#include "base/memory.h"
#include "base/states.h"
#include "net/bytes/endian.h"
#include "net/bytes/frame.h"
#include "net/socket/lost.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    FRAMES = 4,
    FIRST_FRAMES = 2,
    BUFFER_BYTES_MIN = 256 * 1024,
    PIECES = 16,
    READ_AWAY_MAX = 1024
};

/* What the kernel keeps unsent where bulk leaves room for others: enough for it to go on with
 * until this process is woken, and what takes a millisecond at 1 Gbit/s. */
enum { UNSENT_BYTES = 128 * 1024 };

/* A numbered frame is lent behind so much room, whose end its number is: both go out as one
 * piece, and the frame is aligned. */
enum { NUMBER_ROOM = RPI_EXTENT_ALIGNMENT, NUMBER_BYTES = RPI_TCP_NUMBER_BYTES };

static const rpi_states out_next[] = {
    [RPI_TCP_OUT_OPEN] = RPI_STATE(RPI_TCP_OUT_FULL) | RPI_STATE(RPI_TCP_OUT_ENDED),
    [RPI_TCP_OUT_FULL] = RPI_STATE(RPI_TCP_OUT_OPEN) | RPI_STATE(RPI_TCP_OUT_ENDED),
    [RPI_TCP_OUT_ENDED] = 0,
};

static const rpi_states in_next[] = {
    [RPI_TCP_IN_DRY] =
        RPI_STATE(RPI_TCP_IN_READY) | RPI_STATE(RPI_TCP_IN_LAST) | RPI_STATE(RPI_TCP_IN_ENDED),
    [RPI_TCP_IN_READY] =
        RPI_STATE(RPI_TCP_IN_DRY) | RPI_STATE(RPI_TCP_IN_LAST) | RPI_STATE(RPI_TCP_IN_ENDED),
    [RPI_TCP_IN_LAST] =
        RPI_STATE(RPI_TCP_IN_DRY) | RPI_STATE(RPI_TCP_IN_LAST) | RPI_STATE(RPI_TCP_IN_ENDED),
    [RPI_TCP_IN_ENDED] = 0,
};

static const rpi_states goes_next[] = {
    [RPI_TCP_GOES_NONE] = RPI_STATE(RPI_TCP_GOES_NONE) | RPI_STATE(RPI_TCP_GOES_FIRST) |
                          RPI_STATE(RPI_TCP_GOES_OTHER),
    [RPI_TCP_GOES_FIRST] = RPI_STATE(RPI_TCP_GOES_NONE) | RPI_STATE(RPI_TCP_GOES_FIRST),
    [RPI_TCP_GOES_OTHER] = RPI_STATE(RPI_TCP_GOES_NONE) | RPI_STATE(RPI_TCP_GOES_OTHER),
};

static size_t room_before(const rpi_tcp_stream *stream) {
    return stream->numbered ? NUMBER_ROOM : 0;
}

static size_t number_bytes(const rpi_tcp_stream *stream) {
    return stream->numbered ? NUMBER_BYTES : 0;
}

rp_status rpi_tcp_stream_open(rpi_tcp_stream *stream, rpi_link *link, rpi_channel channel,
                              size_t frame_bytes, bool numbered) {
    size_t bytes = FRAMES * (rpi_extent_round(frame_bytes) + (numbered ? NUMBER_ROOM : 0));
    size_t first_bytes = numbered ? 0 : FIRST_FRAMES * rpi_extent_round(frame_bytes);
    if (bytes < BUFFER_BYTES_MIN) bytes = BUFFER_BYTES_MIN;
    *stream = (rpi_tcp_stream){.link = link,
                               .channel = channel,
                               .frame_bytes = frame_bytes,
                               .numbered = numbered,
                               .in = RPI_TCP_IN_READY,
                               .others = {.queue = {.capacity = bytes}},
                               .first = {.queue = {.capacity = first_bytes}},
                               .frames = {.capacity = bytes}};
    RP_TRY(rpi_alloc_pages(bytes, "a send buffer", &stream->others.bytes));
    if (!numbered) RP_TRY(rpi_alloc_pages(first_bytes, "a send buffer", &stream->first.bytes));
    return rpi_alloc_pages(bytes, "a receive buffer", &stream->in_bytes);
}

/* Closing with unread bytes would reset the connection, and what the kernel has still to send
 * would be lost. */
static void read_away(int fd) {
    char bytes[16 * 1024];
    for (int i = 0; i < READ_AWAY_MAX; i++)
        if (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) <= 0) return;
}

void rpi_tcp_stream_close(rpi_tcp_stream *stream) {
    rpi_channel_shut(&stream->channel);
    read_away(stream->channel.fd);
    rpi_channel_close(&stream->channel);
    rpi_free_pages(stream->others.bytes, stream->others.queue.capacity);
    rpi_free_pages(stream->first.bytes, stream->first.queue.capacity);
    rpi_free_pages(stream->in_bytes, stream->frames.capacity);
}

/* --- out --- */

bool rpi_tcp_stream_is_delivered(const rpi_tcp_stream *stream) {
    int unsent = 0;
    if (stream->fault.status != RP_OK) return true; /* nobody is there to receive */
    if (rpi_tcp_stream_has_queue(stream)) return false;
    return ioctl(stream->channel.fd, SIOCOUTQNSD, &unsent) != 0 || unsent == 0;
}

static rp_status keep_errno(rpi_tcp_stream *stream, const char *doing) {
    int peer = stream->link->peer;
    stream->was_closed = errno == EPIPE || errno == ECONNRESET;
    rp_status status =
        stream->was_closed
            ? RP_FAIL(PEER, "%s: rank %d closed the connection (%s)", rpi_lost_text(errno),
                      peer, doing)
            : RP_FAIL_ERRNO(PEER, "the connection to rank %d failed (%s)", peer, doing);
    return rpi_fault_keep(&stream->fault, status);
}

/* Whose oldest frame goes now. */
static rpi_tcp_lane *lane_that_goes(rpi_tcp_stream *stream) {
    bool is_first = stream->goes == RPI_TCP_GOES_NONE ? stream->first.queue.count > 0
                                                      : stream->goes == RPI_TCP_GOES_FIRST;
    return is_first ? &stream->first : &stream->others;
}

/* A frame of this lane has begun to go. */
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

/* Frames of one lane, from one index until another. What lies before a frame's number is not
 * sent. */
static void add(const rpi_tcp_stream *stream, rpi_tcp_lane *lane, uint32_t from, uint32_t until,
                to_send *p) {
    size_t lead = room_before(stream) - number_bytes(stream);
    for (uint32_t i = from; i < until && p->count < PIECES; i++) {
        const rpi_extent *frame = rpi_extents_at(&lane->queue, i);
        size_t skip = lead + p->skip;
        p->at[p->count++] =
            (struct iovec){lane->bytes + frame->offset + skip, frame->bytes - skip};
        p->skip = 0;
    }
}

/* Frames lie aligned, with gaps between them: gathered, so that one call sends many. The one
 * that goes, all that are urgent, the others. */
static void gather(rpi_tcp_stream *stream, to_send *p) {
    rpi_tcp_lane *first = &stream->first, *others = &stream->others;
    uint32_t count = others->queue.count;
    uint32_t begun = lane_that_goes(stream) == first ? 0 : 1;
    *p = (to_send){.skip = stream->sent};
    add(stream, others, 0, begun < count ? begun : count, p);
    add(stream, first, 0, first->queue.count, p);
    add(stream, others, begun, count, p);
}

/* The kernel has taken all of it that was left. */
static void end(rpi_tcp_stream *stream, rpi_tcp_lane *lane, size_t left) {
    bool is_first = lane == &stream->first;
    if (!is_first) stream->queued -= stream->sent + left;
    if (!is_first && !stream->numbered) stream->link->settled++;
    stream->sent = 0;
    RPI_ENTER(goes_next, stream->goes, RPI_TCP_GOES_NONE);
    rpi_extents_pop(&lane->queue);
}

/* The kernel has taken so many more bytes, in that order. */
static void take_sent(rpi_tcp_stream *stream, size_t bytes) {
    size_t lead = room_before(stream) - number_bytes(stream);
    rpi_link_count_sent(stream->link, bytes);
    while (bytes > 0) {
        rpi_tcp_lane *lane = lane_that_goes(stream);
        size_t left = rpi_extents_at(&lane->queue, 0)->bytes - lead - stream->sent;
        if (bytes < left) {
            stream->sent += bytes;
            begin(stream, lane);
            return;
        }
        bytes -= left;
        end(stream, lane, left);
    }
}

/* The kernel takes no more. TLS has sealed what it was given first, which stays first. */
static void wait_for_kernel(rpi_tcp_stream *stream) {
    RPI_ENTER(out_next, stream->out, RPI_TCP_OUT_FULL);
    if (stream->channel.tls) begin(stream, lane_that_goes(stream));
}

void rpi_tcp_stream_mute(rpi_tcp_stream *stream) {
    if (stream->out != RPI_TCP_OUT_ENDED) RPI_ENTER(out_next, stream->out, RPI_TCP_OUT_ENDED);
}

void rpi_tcp_stream_hang_up(rpi_tcp_stream *stream) {
    if (stream->in != RPI_TCP_IN_ENDED) RPI_ENTER(in_next, stream->in, RPI_TCP_IN_LAST);
}

bool rpi_tcp_stream_may_send(const rpi_tcp_stream *stream) {
    return stream->out == RPI_TCP_OUT_OPEN && rpi_tcp_stream_has_queue(stream);
}

static void send_queue(rpi_tcp_stream *stream) {
    to_send p;
    while (rpi_tcp_stream_may_send(stream)) {
        gather(stream, &p);
        ssize_t sent = rpi_channel_send_pieces(&stream->channel, p.at, p.count);
        if (sent < 0) {
            if (errno == EAGAIN)
                wait_for_kernel(stream);
            else if (errno != EINTR) {
                keep_errno(stream, "sending");
                rpi_tcp_stream_mute(stream);
                rpi_tcp_stream_hang_up(stream); /* read what had come */
            }
            continue;
        }
        take_sent(stream, (size_t)sent);
    }
}

/* A region of this lane, behind so much room. */
static rp_status lend(rpi_tcp_stream *stream, rpi_tcp_lane *lane, size_t room, size_t bytes,
                      void **out_region) {
    if (bytes == 0 || bytes > stream->frame_bytes)
        return RP_FAIL(INVALID, "a frame of %zu bytes; 1 to %zu are allowed", bytes,
                       stream->frame_bytes);
    RP_TRY(rpi_fault_raise(&stream->fault));
    if (lane->lent.bytes < bytes) {
        rpi_extent lent = {.bytes = bytes};
        bool fits = rpi_extents_fit(&lane->queue, room + bytes, &lent.offset);
        lane->starved = fits ? 0 : bytes;
        if (!fits) return RP_PENDING;
        lane->lent = lent;
    }
    *out_region = lane->bytes + lane->lent.offset + room;
    return RP_OK;
}

rp_status rpi_tcp_stream_lend(rpi_tcp_stream *stream, size_t bytes, void **out_region) {
    return lend(stream, &stream->others, room_before(stream), bytes, out_region);
}

/* Of use alone: what it does not take is no reason to fail. */
static void keep_short(rpi_tcp_stream *stream) {
    unsigned unsent = UNSENT_BYTES;
    if (stream->is_short) return;
    stream->is_short = true;
    (void)setsockopt(stream->channel.fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent,
                     sizeof unsent);
}

rp_status rpi_tcp_stream_lend_bulk(rpi_tcp_stream *stream, size_t bytes, void **out_region) {
    keep_short(stream);
    stream->bulk_starved = rpi_tcp_stream_has_bulk_room(stream) ? 0 : bytes;
    if (stream->bulk_starved && stream->fault.status == RP_OK) return RP_PENDING;
    return rpi_tcp_stream_lend(stream, bytes, out_region);
}

rp_status rpi_tcp_stream_lend_first(rpi_tcp_stream *stream, size_t bytes, void **out_region) {
    return lend(stream, &stream->first, 0, bytes, out_region);
}

static rp_status check_post(const rpi_tcp_lane *lane, size_t bytes) {
    if (bytes > 0 && bytes <= lane->lent.bytes) return RP_OK;
    return RP_FAIL(STATE, "%zu bytes posted into a region of %zu", bytes, lane->lent.bytes);
}

/* At once: the wire shall work while the next frame is encoded. */
static rp_status push(rpi_tcp_stream *stream, rpi_tcp_lane *lane, size_t bytes) {
    rpi_extents_push(&lane->queue, lane->lent.offset, bytes);
    lane->lent.bytes = 0;
    send_queue(stream);
    return rpi_fault_raise(&stream->fault);
}

rp_status rpi_tcp_stream_post_first(rpi_tcp_stream *stream, size_t bytes) {
    RP_TRY(check_post(&stream->first, bytes));
    return push(stream, &stream->first, bytes);
}

static void write_number(unsigned char *at, uint32_t number) {
    rpi_put_u32(at, number);
    rpi_put_u32(at + 4, rpi_crc32c(0, at, 4));
}

rp_status rpi_tcp_stream_post(rpi_tcp_stream *stream, size_t bytes, uint32_t number) {
    rpi_tcp_lane *lane = &stream->others;
    size_t room = room_before(stream);
    RP_TRY(check_post(lane, bytes));
    if (stream->numbered)
        write_number(lane->bytes + lane->lent.offset + room - NUMBER_BYTES, number);
    else
        stream->link->passable++;
    stream->posted += bytes + number_bytes(stream);
    stream->queued += bytes + number_bytes(stream);
    return push(stream, lane, room + bytes);
}

/* --- in --- */

static void fail(rpi_tcp_stream *stream, rp_status status) {
    rpi_fault_keep(&stream->fault, status);
    RPI_ENTER(in_next, stream->in, RPI_TCP_IN_ENDED);
}

/* Numbers rise on each stream; which of them come is the link's matter. */
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

/* A frame begins in `ahead`: give it a place. False when it cannot come yet, or never. */
static bool begin_frame(rpi_tcp_stream *stream, const unsigned char *at) {
    rpi_frame_header header;
    rpi_extent frame;
    uint32_t number;
    rp_status status = read_number(stream, at, &number);
    if (status == RP_OK) status = rpi_frame_header_read(at + number_bytes(stream), &header);
    if (status == RP_OK && header.bytes > stream->frame_bytes - RPI_FRAME_HEADER_BYTES)
        status = RP_FAIL(CORRUPT, "a frame says %u bytes of payload; %zu are allowed",
                         header.bytes, stream->frame_bytes - RPI_FRAME_HEADER_BYTES);
    if (status != RP_OK) {
        fail(stream, rpi_fail_context(status, "from rank %d: ", stream->link->peer));
        return false;
    }
    frame.bytes = RPI_FRAME_HEADER_BYTES + header.bytes;
    stream->full = !rpi_extents_fit(&stream->frames, frame.bytes, &frame.offset);
    if (stream->full) return false;
    stream->numbers[(stream->frames.first + stream->frames.count) % RPI_EXTENTS] = number;
    stream->last_number = number;
    stream->has_number = true;
    rpi_extents_push(&stream->frames, frame.offset, frame.bytes);
    stream->missing = frame.bytes;
    return true;
}

/* Where the next byte of the frame that is coming goes. */
static unsigned char *tail(rpi_tcp_stream *stream) {
    const rpi_extent *frame = rpi_extents_at(&stream->frames, stream->frames.count - 1);
    return stream->in_bytes + frame->offset + frame->bytes - stream->missing;
}

/* Deal out what was read ahead; what is left is less than a header, or has no room. */
static void deal(rpi_tcp_stream *stream) {
    const unsigned char *at = stream->ahead, *end = at + stream->ahead_bytes;
    for (;;) {
        size_t left = (size_t)(end - at);
        size_t bytes = left < stream->missing ? left : stream->missing;
        if (bytes > 0) memcpy(tail(stream), at, bytes);
        stream->missing -= bytes;
        at += bytes;
        if ((size_t)(end - at) < RPI_FRAME_HEADER_BYTES + number_bytes(stream) ||
            !begin_frame(stream, at))
            break;
        at += number_bytes(stream);
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
                     RPI_FRAME_HEADER_BYTES + number_bytes(stream) - stream->ahead_bytes));
    else
        fail(stream,
             RP_FAIL(PEER, "connection closed by peer: rank %d closed the connection", peer));
}

/* One read: the rest of the frame that is coming straight to its place, and what follows. */
static void receive(rpi_tcp_stream *stream) {
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
            fail(stream, keep_errno(stream, "receiving"));
        return;
    }
    rpi_link_count_received(stream->link, (size_t)got);
    /* Less than asked for: drained. TLS may hold back what has no room in one record. */
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
        return stream->in == RPI_TCP_IN_ENDED ? rpi_fault_raise(&stream->fault) : RP_PENDING;
    const rpi_extent *frame = rpi_extents_at(&stream->frames, 0);
    stream->held = true;
    *out_frame = stream->in_bytes + frame->offset;
    *out_bytes = frame->bytes;
    return RP_OK;
}

void rpi_tcp_stream_release(rpi_tcp_stream *stream) {
    if (!stream->held) return;
    stream->held = false;
    rpi_extents_pop(&stream->frames);
    stream->full = false;
    if (stream->in != RPI_TCP_IN_ENDED) deal(stream);
}

/* --- both --- */

static void note_readable(rpi_tcp_stream *stream) {
    if (stream->in == RPI_TCP_IN_DRY) RPI_ENTER(in_next, stream->in, RPI_TCP_IN_READY);
}

static void note_writable(rpi_tcp_stream *stream) {
    if (stream->out == RPI_TCP_OUT_FULL) RPI_ENTER(out_next, stream->out, RPI_TCP_OUT_OPEN);
}

void rpi_tcp_stream_event(rpi_tcp_stream *stream, uint32_t events) {
    if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) rpi_tcp_stream_hang_up(stream);
    if (events & EPOLLIN) note_readable(stream);
    if (events & EPOLLOUT) note_writable(stream);
    if (!stream->channel.tls) return;
    /* To go on, TLS may have to hear what it does not ask for, and the other way round. */
    if (events & EPOLLOUT) note_readable(stream);
    if (events & EPOLLIN) note_writable(stream);
}

void rpi_tcp_stream_move(rpi_tcp_stream *stream) {
    if (stream->fault.status == RP_OK) send_queue(stream);
    while (rpi_tcp_stream_may_receive(stream)) receive(stream);
}

bool rpi_tcp_stream_has_room(rpi_tcp_stream *stream, size_t bytes) {
    size_t offset;
    return rpi_extents_fit(&stream->others.queue, bytes + room_before(stream), &offset);
}

bool rpi_tcp_stream_has_bulk_room(const rpi_tcp_stream *stream) {
    return stream->queued <= stream->frame_bytes / 2;
}

static bool awaits_room(const rpi_tcp_stream *stream) {
    return stream->others.starved || stream->bulk_starved || stream->first.starved;
}

static bool has_first_room(rpi_tcp_stream *stream, size_t bytes) {
    size_t offset;
    return rpi_extents_fit(&stream->first.queue, bytes, &offset);
}

/* Told once: who waits for room asks for it again, or does not wait any more. */
static bool room_has_come(rpi_tcp_stream *stream) {
    size_t others = stream->others.starved, first = stream->first.starved;
    bool some = (others && rpi_tcp_stream_has_room(stream, others)) ||
                (stream->bulk_starved && rpi_tcp_stream_has_bulk_room(stream)) ||
                (first && has_first_room(stream, first));
    if (some) stream->others.starved = stream->bulk_starved = stream->first.starved = 0;
    return some;
}

bool rpi_tcp_stream_has_news(rpi_tcp_stream *stream) {
    if (!stream->held && rpi_tcp_stream_has_frame(stream)) return true;
    if (rpi_tcp_stream_may_receive(stream)) return true;
    if (stream->fault.status != RP_OK)
        return !stream->fault.told && (!stream->held || awaits_room(stream));
    if (rpi_tcp_stream_may_send(stream)) return true;
    return room_has_come(stream);
}
