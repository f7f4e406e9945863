/* TCP streams whose every wait has a deadline; shared by the store and the control connection.
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
 * interfaces; port 0 any free one, of REDPOLL_PORTS if that is set. RP_IO: taken. */
rp_status rpi_stream_listen(const char *host, int port, int *out_fd, int *out_port);
/* Whether one could listen at this port of all interfaces now. It is bound for a moment without
 * listening, so that neither a listener that starts meanwhile nor another such check finds it
 * taken. */
bool rpi_stream_port_is_free(int port);
/* A port that is free now, for a program that listens later; the last of REDPOLL_PORTS, since
 * listeners take the first. RP_IO. */
rp_status rpi_stream_reserve(const char *host, int *out_port);
/* The next waiting connection, or -1: none now, or none that could be accepted (errno). */
int rpi_stream_accept(int listener);
/* Connect, and try again while nobody listens there yet, until the deadline: RP_TIMEOUT. If
 * there are several addresses, one that does not answer gets a quarter of a second at first. */
rp_status rpi_stream_dial(const char *host, int port, int64_t deadline_ns, int *out_fd);
/* The same with a check during the wait. look: NULL is fine. */
rp_status rpi_stream_dial_looking(const char *host, int port, int64_t deadline_ns,
                                  rpi_look *look, int *out_fd);
/* The same over a list of addresses, some of which may be unreachable; `shown` is for messages.
 */
rp_status rpi_stream_dial_any(const struct addrinfo *list, const char *shown,
                              int64_t deadline_ns, rpi_look *look, int *out_fd);
/* One attempt at one address. A connected descriptor, or -1 with errno. */
int rpi_stream_dial_once(const struct addrinfo *at, int64_t deadline_ns);
/* Begin to connect to one address. RP_PENDING: when *out_fd can be written to,
 * rpi_stream_dial_error() has the result. RP_PEER: nobody listens there; RP_TIMEOUT: it cannot
 * be reached now; RP_IO. */
rp_status rpi_stream_begin_dial(const struct addrinfo *at, int *out_fd);
/* 0: it is connected. Else an errno. It is ECONNREFUSED also for a socket that is connected to
 * itself: TCP may choose as source the very port of this host that it connects to. */
int rpi_stream_dial_error(int fd);
/* The other side closed before it had sent anything, as it does if it has too many callers:
 * close *fd and pause for a moment. False after enough attempts, or if no time is left. Zeros
 * to begin with. */
typedef struct rpi_redials {
    int64_t first_ns; /* 0: there was none */
} rpi_redials;
bool rpi_stream_dials_again(rpi_redials *redials, int *fd, int64_t deadline_ns);
/* Sleep until `events` of poll() come; RP_TIMEOUT: none did. RP_OK promises nothing: repeat the
 * call that returned EAGAIN. */
rp_status rpi_stream_wait(int fd, short events, int64_t deadline_ns);
/* Our own address on a connection, as numbers: peers of the same network can reach us by it. */
rp_status rpi_stream_local_host(int fd, char *text, size_t bytes);
/* Whether the other end's kernel has acknowledged nothing for this long, despite repeated
 * requests. This is so if its host has no power or cable; the kernel of a stopped or busy
 * process answers. There must be bytes to acknowledge, so this is only for connections on which
 * something is sent often. */
bool rpi_stream_is_unanswered(int fd, int64_t limit_ns);
/* Milliseconds until a deadline, for poll(): rounded up, 0 when past, -1 for never. */
int rpi_poll_ms(int64_t deadline_ns);

#endif
