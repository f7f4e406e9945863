#include "net/tcp/tcp_stream.h"

#include "base/memory.h"
#include "net/tcp/tcp_in.h"
#include "net/tcp/tcp_out.h"

#include <sys/epoll.h>
#include <sys/socket.h>

enum { FRAMES = 4, FIRST_FRAMES = 2, BUFFER_BYTES_MIN = 256 * 1024, READ_AWAY_MAX = 1024 };

rp_status rpi_tcp_stream_open(rpi_tcp_stream *stream, rpi_link *link, rpi_channel channel,
                              size_t frame_bytes, bool numbered) {
    size_t bytes =
        FRAMES * (rpi_ring_round(frame_bytes) + (numbered ? RPI_TCP_NUMBER_ROOM : 0));
    size_t first_bytes = numbered ? 0 : FIRST_FRAMES * rpi_ring_round(frame_bytes);
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

/* Closing with unread bytes would reset the connection, and bytes that the kernel has still to
 * send would be lost. */
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

void rpi_tcp_stream_event(rpi_tcp_stream *stream, uint32_t events) {
    if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) rpi_tcp_stream_hang_up(stream);
    if (events & EPOLLIN) rpi_tcp_stream_note_readable(stream);
    if (events & EPOLLOUT) rpi_tcp_stream_note_writable(stream);
    if (!stream->channel.tls) return;
    /* To continue TLS may have to read when it wants to write, and the other way round. */
    if (events & EPOLLOUT) rpi_tcp_stream_note_readable(stream);
    if (events & EPOLLIN) rpi_tcp_stream_note_writable(stream);
}

void rpi_tcp_stream_move(rpi_tcp_stream *stream) {
    if (stream->sticky.status == RP_OK) rpi_tcp_stream_send(stream);
    while (rpi_tcp_stream_may_receive(stream)) rpi_tcp_stream_receive(stream);
}

bool rpi_tcp_stream_is_ready(rpi_tcp_stream *stream) {
    if (!stream->held && rpi_tcp_stream_has_frame(stream)) return true;
    if (rpi_tcp_stream_may_receive(stream)) return true;
    if (stream->sticky.status != RP_OK)
        return !stream->sticky.told && (!stream->held || rpi_tcp_stream_awaits_room(stream));
    if (rpi_tcp_stream_may_send(stream)) return true;
    return rpi_tcp_stream_room_has_come(stream);
}
