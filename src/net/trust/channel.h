/* A connection: a descriptor, and the TLS over it where the job asks for that (secret.h).
 *
 *     dial, or accept --> who has the secret (handshake.h)? --> TLS, if so --> bytes
 *
 * Between open and close nobody else reads from the descriptor or writes to it; to wait for it,
 * as poll() and epoll do, is fine once a call here has said EAGAIN or RP_PENDING. */
#ifndef RPI_NET_CHANNEL_H
#define RPI_NET_CHANNEL_H

#include "net/trust/tls.h"

#include <stdint.h>
#include <sys/uio.h>

typedef struct rpi_channel {
    int fd;       /* -1: closed */
    rpi_tls *tls; /* NULL: bytes go as they are */
} rpi_channel;

/* As sendmsg() and recvmsg() on a non-blocking socket that raises no SIGPIPE: bytes, 0 at the
 * end, or -1 with errno. After EAGAIN the next call sends the same bytes, or these and more. */
ssize_t rpi_channel_send_pieces(rpi_channel *channel, const struct iovec *pieces, int count);
ssize_t rpi_channel_receive_pieces(rpi_channel *channel, const struct iovec *pieces, int count);
ssize_t rpi_channel_send(rpi_channel *channel, const void *data, size_t bytes);
ssize_t rpi_channel_receive(rpi_channel *channel, void *data, size_t bytes);
/* The events of poll() after an EAGAIN, instead of `events`: TLS may have to read before it can
 * write. */
short rpi_channel_awaits(const rpi_channel *channel, short events);
/* All bytes or a failure: RP_PEER if the other end closed or died, RP_TIMEOUT. Messages only
 * say what happened ("closed the connection"); callers add to whom. */
rp_status rpi_channel_write(rpi_channel *channel, const void *data, size_t bytes,
                            int64_t deadline_ns);
rp_status rpi_channel_read(rpi_channel *channel, void *data, size_t bytes, int64_t deadline_ns);
/* The same on a connection without TLS. */
rp_status rpi_stream_write(int fd, const void *data, size_t bytes, int64_t deadline_ns);
rp_status rpi_stream_read(int fd, void *data, size_t bytes, int64_t deadline_ns);
/* Nothing follows; bytes of the other side can still be read. */
void rpi_channel_shut(rpi_channel *channel);
void rpi_channel_close(rpi_channel *channel); /* again is fine */

#endif
