#include "net/tcp/tcp_multistream.h"

#include "base/append.h"
#include "base/memory.h"
#include "net/bytes/close_after_fork.h"
#include "net/socket/interfaces.h"
#include "net/tcp/tcp_in.h"
#include "net/tcp/tcp_out.h"

#include <sys/socket.h>

rp_status rpi_tcp_multistream_open(rpi_tcp_multistream *multistream, rpi_link *link,
                                   const rpi_channel *channels, int count, size_t frame_bytes) {
    *multistream =
        (rpi_tcp_multistream){.frame_bytes = frame_bytes, .reserved = -1, .held = -1};
    rp_status status = rpi_alloc_array((size_t)count, sizeof *multistream->streams, "a link",
                                       &multistream->streams);
    if (status != RP_OK) {
        for (int i = 0; i < count; i++)
            rpi_channel_close(&(rpi_channel){channels[i].fd, channels[i].tls});
        return status;
    }
    multistream->count = count;
    for (int i = 0; i < count; i++) {
        rp_status one = rpi_tcp_stream_open(&multistream->streams[i], link, channels[i],
                                            frame_bytes, count > 1);
        if (status == RP_OK) status = one;
    }
    return status;
}

void rpi_tcp_multistream_close(rpi_tcp_multistream *multistream) {
    for (int i = 0; i < multistream->count; i++) rpi_tcp_stream_close(&multistream->streams[i]);
    rpi_free(multistream->streams);
    multistream->streams = NULL;
    multistream->count = 0;
}

void rpi_tcp_multistream_close_after_fork(rpi_tcp_multistream *multistream) {
    for (int i = 0; i < multistream->count; i++)
        rpi_fd_close_after_fork(&multistream->streams[i].channel.fd);
}

/* ---- faults ---- */

/* Another stream has failed: nothing more is sent on this one. If the peer has closed that
 * stream it closes this one, too, perhaps after frames that are under way, or when it notices
 * that we have. Any other failure is unknown to the peer: the bytes that are here are all. */
static void end_stream(rpi_tcp_stream *stream, bool was_closed) {
    rpi_tcp_stream_mute(stream);
    if (stream->sticky.status != RP_OK) return;
    if (was_closed) {
        rpi_channel_shut(&stream->channel);
        return;
    }
    shutdown(stream->channel.fd, SHUT_RDWR);
    rpi_tcp_stream_hang_up(stream);
}

/* If a stream has failed, so has the link, with the recorded failure of the stream. */
static rp_status look_for_fault(rpi_tcp_multistream *multistream) {
    int failed = 0;
    if (multistream->sticky.status != RP_OK) return multistream->sticky.status;
    while (failed < multistream->count && multistream->streams[failed].sticky.status == RP_OK)
        failed++;
    if (failed == multistream->count) return RP_OK;
    const rpi_tcp_stream *first = &multistream->streams[failed];
    rpi_sticky_error_keep(&multistream->sticky,
                          rpi_fail(first->sticky.status, __FILE__, __LINE__,
                                   "%.160s (stream %d of %d)", first->sticky.text, failed + 1,
                                   multistream->count));
    for (int i = 0; i < multistream->count; i++)
        end_stream(&multistream->streams[i], first->was_closed);
    return multistream->sticky.status;
}

/* ---- out ---- */

/* The stream with the fewest bytes to send; of those with none, the one that has sent the
 * fewest. */
static bool is_before(const rpi_tcp_stream *a, const rpi_tcp_stream *b) {
    return a->queued != b->queued ? a->queued < b->queued : a->posted < b->posted;
}

/* The stream for the next frame; -1: none has room. */
static int choose(const rpi_tcp_multistream *multistream, size_t bytes, bool bulk) {
    int best = -1;
    for (int i = 0; i < multistream->count; i++)
        if (rpi_tcp_stream_has_room(&multistream->streams[i], bytes) &&
            (!bulk || rpi_tcp_stream_has_bulk_room(&multistream->streams[i])) &&
            (best < 0 || is_before(&multistream->streams[i], &multistream->streams[best])))
            best = i;
    return best;
}

/* The reserved region, if it is long enough. */
static bool reserve_again(rpi_tcp_multistream *multistream, size_t bytes, void **out_region) {
    if (multistream->reserved < 0) return false;
    rpi_tcp_stream *stream = &multistream->streams[multistream->reserved];
    if (stream->others.reserved.bytes >= bytes)
        return rpi_tcp_stream_reserve(stream, bytes, out_region) == RP_OK;
    stream->others.reserved.bytes = 0;
    multistream->reserved = -1;
    return false;
}

/* Numbered frames do not pass each other. */
static bool goes_first(const rpi_tcp_multistream *multistream, rpi_traffic traffic) {
    return multistream->count == 1 && traffic == RPI_TRAFFIC_URGENT;
}

rp_status rpi_tcp_multistream_reserve(rpi_tcp_multistream *multistream, size_t bytes,
                                      rpi_traffic traffic, void **out_region) {
    bool only = multistream->count == 1 || bytes == 0 || bytes > multistream->frame_bytes;
    bool bulk = traffic == RPI_TRAFFIC_BULK;
    if (goes_first(multistream, traffic))
        return rpi_tcp_stream_reserve_first(&multistream->streams[0], bytes, out_region);
    if (only && bulk)
        return rpi_tcp_stream_reserve_bulk(&multistream->streams[0], bytes, out_region);
    if (only) return rpi_tcp_stream_reserve(&multistream->streams[0], bytes, out_region);
    if (look_for_fault(multistream) != RP_OK)
        return rpi_sticky_error_raise(&multistream->sticky);
    if (reserve_again(multistream, bytes, out_region)) return RP_OK;
    int chosen = choose(multistream, bytes, bulk);
    *(bulk ? &multistream->bulk_starved : &multistream->starved) = chosen < 0 ? bytes : 0;
    if (chosen < 0) return RP_PENDING;
    multistream->reserved = chosen;
    rpi_tcp_stream *stream = &multistream->streams[chosen];
    return bulk ? rpi_tcp_stream_reserve_bulk(stream, bytes, out_region)
                : rpi_tcp_stream_reserve(stream, bytes, out_region);
}

rp_status rpi_tcp_multistream_commit(rpi_tcp_multistream *multistream, size_t bytes,
                                     rpi_traffic traffic) {
    if (goes_first(multistream, traffic))
        return rpi_tcp_stream_commit_first(&multistream->streams[0], bytes);
    rpi_tcp_stream *stream =
        &multistream->streams[multistream->reserved < 0 ? 0 : multistream->reserved];
    rp_status status = rpi_tcp_stream_commit(stream, bytes, multistream->next_out);
    if (multistream->count == 1 || status == RP_STATE) return status;
    multistream->reserved = -1;
    multistream->next_out++;
    (void)look_for_fault(multistream);
    return rpi_sticky_error_raise(&multistream->sticky);
}

bool rpi_tcp_multistream_is_flushed(const rpi_tcp_multistream *multistream) {
    if (multistream->sticky.status != RP_OK) return true; /* nobody is there to receive */
    for (int i = 0; i < multistream->count; i++) {
        const rpi_tcp_stream *stream = &multistream->streams[i];
        if (stream->sticky.status == RP_OK && rpi_tcp_stream_has_queue(stream)) return false;
    }
    return true;
}

bool rpi_tcp_multistream_is_delivered(const rpi_tcp_multistream *multistream) {
    if (multistream->sticky.status != RP_OK) return true;
    for (int i = 0; i < multistream->count; i++)
        if (!rpi_tcp_stream_is_delivered(&multistream->streams[i])) return false;
    return true;
}

/* ---- in ---- */

/* The stream that has the next frame complete; -1: it has not arrived. */
static int find_next(const rpi_tcp_multistream *multistream) {
    for (int i = 0; i < multistream->count; i++) {
        const rpi_tcp_stream *stream = &multistream->streams[i];
        if (rpi_tcp_stream_has_frame(stream) &&
            rpi_tcp_stream_number(stream) == multistream->next_in)
            return i;
    }
    return -1;
}

/* Numbers rise on each stream: a stream that has a later frame, or has ended, cannot bring it.
 */
static bool may_come(const rpi_tcp_multistream *multistream) {
    for (int i = 0; i < multistream->count; i++) {
        const rpi_tcp_stream *stream = &multistream->streams[i];
        if (stream->in != RPI_TCP_IN_ENDED &&
            (stream->frames.count == 0 ||
             rpi_tcp_stream_number(stream) == multistream->next_in))
            return true;
    }
    return false;
}

rp_status rpi_tcp_multistream_peek(rpi_tcp_multistream *multistream, const void **out_frame,
                                   size_t *out_bytes) {
    if (multistream->count == 1)
        return rpi_tcp_stream_peek(&multistream->streams[0], out_frame, out_bytes);
    int next = find_next(multistream);
    if (next >= 0) {
        multistream->held = next;
        return rpi_tcp_stream_peek(&multistream->streams[next], out_frame, out_bytes);
    }
    (void)look_for_fault(multistream);
    if (may_come(multistream)) return RP_PENDING;
    if (multistream->sticky.status == RP_OK)
        rpi_sticky_error_keep(
            &multistream->sticky,
            RP_FAIL(CORRUPT, "from rank %d: no stream brings frame %u of the link",
                    multistream->streams[0].link->peer, multistream->next_in));
    return rpi_sticky_error_raise(&multistream->sticky);
}

void rpi_tcp_multistream_release(rpi_tcp_multistream *multistream) {
    if (multistream->count == 1) {
        rpi_tcp_stream_release(&multistream->streams[0]);
        return;
    }
    if (multistream->held < 0) return;
    rpi_tcp_stream_release(&multistream->streams[multistream->held]);
    multistream->held = -1;
    multistream->next_in++;
}

/* ---- both ---- */

void rpi_tcp_multistream_move(rpi_tcp_multistream *multistream) {
    for (int i = 0; i < multistream->count; i++) rpi_tcp_stream_move(&multistream->streams[i]);
    if (multistream->count > 1) (void)look_for_fault(multistream);
}

/* The kernel has bytes of a stream, or takes some. */
static bool may_move(const rpi_tcp_stream *stream) {
    return rpi_tcp_stream_may_receive(stream) ||
           (stream->sticky.status == RP_OK && rpi_tcp_stream_may_send(stream));
}

/* Reported once, as for a single stream. */
static bool room_has_come(rpi_tcp_multistream *multistream) {
    bool some =
        (multistream->starved && choose(multistream, multistream->starved, false) >= 0) ||
        (multistream->bulk_starved &&
         choose(multistream, multistream->bulk_starved, true) >= 0);
    if (some) multistream->starved = multistream->bulk_starved = 0;
    return some;
}

bool rpi_tcp_multistream_is_ready(rpi_tcp_multistream *multistream) {
    if (multistream->count == 1) return rpi_tcp_stream_is_ready(&multistream->streams[0]);
    for (int i = 0; i < multistream->count; i++)
        if (may_move(&multistream->streams[i])) return true;
    if (multistream->held < 0 && find_next(multistream) >= 0) return true;
    bool ends = multistream->held < 0 && !may_come(multistream);
    if (look_for_fault(multistream) != RP_OK)
        return !multistream->sticky.told &&
               (ends || multistream->starved || multistream->bulk_starved);
    return ends || room_has_come(multistream);
}

/* ---- for people ---- */

void rpi_tcp_multistream_describe(const rpi_tcp_multistream *multistream, char *text,
                                  size_t bytes) {
    text[0] = '\0';
    for (int i = 0; i < multistream->count; i++) {
        if (i > 0) rpi_append(text, bytes, ", ");
        rpi_append_way(multistream->streams[i].channel.fd, text, bytes);
    }
}
