/* TCP streams whose every wait has a deadline: what the store and the control connection share.
 *
 * Descriptors are close-on-exec and non-blocking, without Nagle's delay. Nothing raises
 * SIGPIPE. Deadlines are of rpi_now_ns(). */
#ifndef RPI_NET_STREAM_H
#define RPI_NET_STREAM_H

#include "net/bytes/look.h"
#include "net/socket/addresses.h"

#include <stddef.h>
#include <stdint.h>

/* Listen at host:port; host NULL is loopback, a list of several addresses (addresses.h) all
 * interfaces; port 0 any free one, of REDPOLL_PORTS where that is set. RP_IO: taken. */
rp_status rpi_stream_listen(const char *host, int port, int *out_fd, int *out_port);
/* Could somebody listen at this port of all interfaces now? It is bound for the moment, and not
 * listened at: neither a listener that comes meanwhile nor another such trial finds it taken.
 */
bool rpi_stream_port_is_free(int port);
/* A port that is free now, for a program that listens later; of REDPOLL_PORTS the last, since
 * listeners take the first. RP_IO. */
rp_status rpi_stream_reserve(const char *host, int *out_port);
/* The next waiting connection, or -1: none now, or none that could be taken (errno). */
int rpi_stream_accept(int listener);
/* Connect, again and again while nobody listens there yet, until the deadline: RP_TIMEOUT. Of
 * several addresses one that does not answer costs a quarter of a second at first. */
rp_status rpi_stream_dial(const char *host, int port, int64_t deadline_ns, int *out_fd);
/* The same, by one who looks meanwhile. look: NULL is fine. */
rp_status rpi_stream_dial_looking(const char *host, int port, int64_t deadline_ns,
                                  rpi_look *look, int *out_fd);
/* The same over a list of addresses, which may not all lead anywhere; `shown` is for messages.
 */
rp_status rpi_stream_dial_any(const struct addrinfo *list, const char *shown,
                              int64_t deadline_ns, rpi_look *look, int *out_fd);
/* One attempt at one address. A connected descriptor, or -1 with errno. */
int rpi_stream_dial_once(const struct addrinfo *at, int64_t deadline_ns);
/* Begin to connect to one address. RP_PENDING: when *out_fd can be written to,
 * rpi_stream_dial_error() says how it went. RP_PEER: nobody listens there; RP_TIMEOUT: it
 * cannot be reached now; RP_IO. */
rp_status rpi_stream_begin_dial(const struct addrinfo *at, int *out_fd);
/* 0: it is connected. Else an errno, ECONNREFUSED also of a socket that is connected to itself:
 * dialling a free port of this host, TCP may pick that very port as the source. */
int rpi_stream_dial_error(int fd);
/* After the other side hung up before it had said anything, as one does that has too many
 * callers: close *fd and wait a moment. False when that was long enough, or nothing is left of
 * the time. Zeros to begin with. */
typedef struct rpi_redials {
    int64_t first_ns; /* 0: there was none */
} rpi_redials;
bool rpi_stream_dials_again(rpi_redials *redials, int *fd, int64_t deadline_ns);
/* Sleep until `events` of poll() come; RP_TIMEOUT: none did. RP_OK promises nothing: call again
 * what said EAGAIN. */
rp_status rpi_stream_wait(int fd, short events, int64_t deadline_ns);
/* Our own address on a connection, as numbers: what peers of the same network reach us by. */
rp_status rpi_stream_local_host(int fd, char *text, size_t bytes);
/* Has the other end's kernel acknowledged nothing for so long, though asked again and again? So
 * it is with a host without power or cable; that of a stopped or busy process answers. What is
 * under way must be acknowledged: only for connections on which something is said often. */
bool rpi_stream_is_unanswered(int fd, int64_t limit_ns);
/* Milliseconds until a deadline, for poll(): rounded up, 0 when past, -1 for never. */
int rpi_poll_ms(int64_t deadline_ns);

#endif
