#include "net/trust/channel.h"

#include "net/socket/lost.h"
#include "net/socket/stream.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static ssize_t send_by_tls(rpi_tls *tls, const struct iovec *pieces, int count) {
    ssize_t total = 0;
    for (int i = 0; i < count; i++) {
        ssize_t sent = rpi_tls_send(tls, pieces[i].iov_base, pieces[i].iov_len, i + 1 < count);
        if (sent < 0) return total > 0 && errno == EAGAIN ? total : -1;
        total += sent;
        if ((size_t)sent < pieces[i].iov_len) break;
    }
    return total;
}

ssize_t rpi_channel_send_pieces(rpi_channel *channel, const struct iovec *pieces, int count) {
    if (channel->tls) return send_by_tls(channel->tls, pieces, count);
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)pieces,
                             .msg_iovlen = (size_t)count};
    return sendmsg(channel->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Records are short: read several, until a piece is not full. */
static ssize_t receive_by_tls(rpi_tls *tls, const struct iovec *pieces, int count) {
    ssize_t total = 0;
    for (int i = 0; i < count; i++)
        for (size_t done = 0; done < pieces[i].iov_len;) {
            ssize_t got = rpi_tls_receive(tls, (char *)pieces[i].iov_base + done,
                                          pieces[i].iov_len - done);
            if (got <= 0) return total > 0 ? total : got; /* the next call says so again */
            total += got;
            done += (size_t)got;
        }
    return total;
}

ssize_t rpi_channel_receive_pieces(rpi_channel *channel, const struct iovec *pieces,
                                   int count) {
    if (channel->tls) return receive_by_tls(channel->tls, pieces, count);
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)pieces,
                             .msg_iovlen = (size_t)count};
    return recvmsg(channel->fd, &message, MSG_DONTWAIT);
}

ssize_t rpi_channel_send(rpi_channel *channel, const void *data, size_t bytes) {
    if (channel->tls) return rpi_tls_send(channel->tls, data, bytes, false);
    return send(channel->fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t rpi_channel_receive(rpi_channel *channel, void *data, size_t bytes) {
    if (channel->tls) return rpi_tls_receive(channel->tls, data, bytes);
    return recv(channel->fd, data, bytes, MSG_DONTWAIT);
}

short rpi_channel_awaits(const rpi_channel *channel, short events) {
    return channel->tls ? rpi_tls_awaits(channel->tls) : events;
}

static rp_status broken(void) {
    if (errno == EPIPE || errno == ECONNRESET || errno == ETIMEDOUT)
        return RP_FAIL(PEER, "%s", rpi_lost_text(errno));
    return RP_FAIL_ERRNO(IO, "the connection failed");
}

rp_status rpi_channel_write(rpi_channel *channel, const void *data, size_t bytes,
                            int64_t deadline_ns) {
    const char *next = data;
    while (bytes > 0) {
        ssize_t sent = rpi_channel_send(channel, next, bytes);
        if (sent >= 0) {
            next += sent;
            bytes -= (size_t)sent;
        } else if (errno == EAGAIN) {
            RP_TRY(rpi_stream_wait(channel->fd, rpi_channel_awaits(channel, POLLOUT),
                                   deadline_ns));
        } else if (errno != EINTR) {
            return broken();
        }
    }
    return RP_OK;
}

rp_status rpi_channel_read(rpi_channel *channel, void *data, size_t bytes,
                           int64_t deadline_ns) {
    char *next = data;
    while (bytes > 0) {
        ssize_t got = rpi_channel_receive(channel, next, bytes);
        if (got == 0) return RP_FAIL(PEER, "%s", rpi_lost_text(0));
        if (got > 0) {
            next += got;
            bytes -= (size_t)got;
        } else if (errno == EAGAIN) {
            RP_TRY(
                rpi_stream_wait(channel->fd, rpi_channel_awaits(channel, POLLIN), deadline_ns));
        } else if (errno != EINTR) {
            return broken();
        }
    }
    return RP_OK;
}

rp_status rpi_stream_write(int fd, const void *data, size_t bytes, int64_t deadline_ns) {
    return rpi_channel_write(&(rpi_channel){.fd = fd}, data, bytes, deadline_ns);
}

rp_status rpi_stream_read(int fd, void *data, size_t bytes, int64_t deadline_ns) {
    return rpi_channel_read(&(rpi_channel){.fd = fd}, data, bytes, deadline_ns);
}

void rpi_channel_shut(rpi_channel *channel) {
    if (channel->tls) rpi_tls_send_end(channel->tls);
    shutdown(channel->fd, SHUT_WR);
}

void rpi_channel_close(rpi_channel *channel) {
    rpi_tls_close(channel->tls);
    channel->tls = NULL;
    if (channel->fd >= 0) close(channel->fd);
    channel->fd = -1;
}
