#include "net/socket/stream.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { REDIAL_NS = 20 * 1000 * 1000, BACKLOG = 1024 };
#define REDIALS_NS       (2 * RPI_SECOND_NS)
#define FIRST_SHARE_NS   (RPI_SECOND_NS / 4)
#define LONGEST_SHARE_NS (4 * RPI_SECOND_NS)

int rpi_poll_ms(int64_t deadline_ns) {
    if (deadline_ns == RPI_NEVER_NS) return -1;
    int64_t left_ns = deadline_ns - rpi_now_ns();
    if (left_ns <= 0) return 0;
    int64_t left_ms = (left_ns + 999999) / 1000000;
    return left_ms > 1000000000 ? 1000000000 : (int)left_ms;
}

static void hurry(int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static int bound_port_of(int fd) {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } address = {.any = {.sa_family = AF_UNSPEC}};
    socklen_t length = sizeof address;
    if (getsockname(fd, &address.any, &length) != 0) return -1;
    return ntohs(address.any.sa_family == AF_INET6 ? address.v6.sin6_port
                                                   : address.v4.sin_port);
}

/* Bound, or -1 with errno. */
static int bind_at(const struct addrinfo *at) {
    int fd =
        socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol);
    if (fd < 0) return -1;
    int one = 1; /* a port whose last connections are in TIME_WAIT is free */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, at->ai_addr, at->ai_addrlen) == 0) return fd;
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

static int listen_at(const struct addrinfo *at) {
    int fd = bind_at(at);
    if (fd < 0 || listen(fd, BACKLOG) == 0) return fd;
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

/* A listener at the first of the addresses that is free, or -1 with errno. */
static int listen_at_any(const struct addrinfo *list) {
    int fd = -1;
    for (const struct addrinfo *at = list; at && fd < 0; at = at->ai_next) fd = listen_at(at);
    return fd;
}

/* If there are several addresses, one listener can only take the one for all interfaces. */
static const char *common_address(const char *host) {
    if (!host || !strchr(host, ',')) return host;
    return strchr(host, ':') ? "::" : "0.0.0.0";
}

/* -1 with errno: taken, or not an address of this host. */
static rp_status listen_once(const char *host, int port, int *out_fd) {
    rpi_addresses addresses;
    RP_TRY(rpi_addresses_find(common_address(host), port, AI_PASSIVE, &addresses));
    *out_fd = listen_at_any(addresses.first);
    int saved = errno;
    rpi_addresses_free(&addresses);
    errno = saved;
    return RP_OK;
}

/* The first free one of REDPOLL_PORTS; `first` may be the last. */
static rp_status listen_in_range(const char *host, int first, int last, int *out_fd) {
    int step = first <= last ? 1 : -1;
    for (int port = first; port != last + step; port += step) {
        RP_TRY(listen_once(host, port, out_fd));
        if (*out_fd >= 0 || errno != EADDRINUSE) return RP_OK;
    }
    return RP_FAIL(IO,
                   "all ports of REDPOLL_PORTS (%d-%d) are taken on this host; a rank needs "
                   "about two, rank 0 four: give it more",
                   first < last ? first : last, first < last ? last : first);
}

static rp_status cannot_listen(const char *host, int port) {
    const char *shown = host ? host : "127.0.0.1";
    if (errno == EADDRINUSE)
        return RP_FAIL(IO,
                       "port %d on %s is taken by another program; choose another port or "
                       "end that program (`ss -ltnp 'sport = :%d'` names it)",
                       port, shown, port);
    return RP_FAIL_ERRNO(IO, "cannot listen at %s:%d", shown, port);
}

rp_status rpi_stream_listen(const char *host, int port, int *out_fd, int *out_port) {
    int fd = -1, first = 0, last = 0;
    if (port == 0) RP_TRY(rpi_ports_find(&first, &last));
    if (first > 0)
        RP_TRY(listen_in_range(host, first, last, &fd));
    else
        RP_TRY(listen_once(host, port, &fd));
    if (fd < 0) return cannot_listen(host, port);
    *out_port = bound_port_of(fd);
    *out_fd = fd;
    return RP_OK;
}

bool rpi_stream_port_is_free(int port) {
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct addrinfo at = {.ai_family = AF_INET,
                          .ai_socktype = SOCK_STREAM,
                          .ai_addr = (struct sockaddr *)&any,
                          .ai_addrlen = sizeof any};
    int fd = bind_at(&at);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

rp_status rpi_stream_reserve(const char *host, int *out_port) {
    int fd = -1, first = 0, last = 0;
    RP_TRY(rpi_ports_find(&first, &last));
    if (!first) RP_TRY(rpi_stream_listen(host, 0, &fd, out_port));
    if (first) RP_TRY(listen_in_range(host, last, first, &fd));
    if (fd < 0) return cannot_listen(host, last);
    *out_port = bound_port_of(fd);
    close(fd);
    return RP_OK;
}

int rpi_stream_accept(int listener) {
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && (errno == ENOSYS || errno == EPERM)) { /* old seccomp profiles */
        fd = accept(listener, NULL, NULL);
        if (fd >= 0 && (fcntl(fd, F_SETFD, FD_CLOEXEC) || fcntl(fd, F_SETFL, O_NONBLOCK))) {
            close(fd);
            fd = -1;
        }
    }
    if (fd >= 0) hurry(fd);
    return fd;
}

static bool is_own_echo(int fd) {
    struct sockaddr_storage here, there;
    socklen_t here_length = sizeof here, there_length = sizeof there;
    memset(&here, 0, sizeof here);
    memset(&there, 0, sizeof there);
    return getsockname(fd, (struct sockaddr *)&here, &here_length) == 0 &&
           getpeername(fd, (struct sockaddr *)&there, &there_length) == 0 &&
           here_length == there_length && memcmp(&here, &there, here_length) == 0;
}

int rpi_stream_dial_error(int fd) {
    int error = 0;
    socklen_t length = sizeof error;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
    return error == 0 && is_own_echo(fd) ? ECONNREFUSED : error;
}

int rpi_stream_dial_once(const struct addrinfo *at, int64_t deadline_ns) {
    int fd =
        socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol);
    if (fd < 0) return -1;
    int error = 0;
    if (connect(fd, at->ai_addr, at->ai_addrlen) != 0) {
        error = errno;
        if (error == EINPROGRESS) {
            struct pollfd wait = {.fd = fd, .events = POLLOUT};
            int ready = 0;
            do ready = poll(&wait, 1, rpi_poll_ms(deadline_ns));
            while (ready < 0 && errno == EINTR);
            error = ready == 0 ? ETIMEDOUT : 0;
        }
    }
    if (error == 0) error = rpi_stream_dial_error(fd);
    if (error == 0) {
        hurry(fd);
        return fd;
    }
    close(fd);
    errno = error;
    return -1;
}

/* Nobody listens there yet, or the network is not up yet: try again. */
static bool may_come(int error) {
    return error == ECONNREFUSED || error == ETIMEDOUT || error == ECONNRESET ||
           error == EHOSTUNREACH || error == ENETUNREACH || error == EAGAIN;
}

rp_status rpi_stream_begin_dial(const struct addrinfo *at, int *out_fd) {
    int fd =
        socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol);
    if (fd < 0) return RP_FAIL_ERRNO(IO, "cannot make a socket");
    hurry(fd);
    if (connect(fd, at->ai_addr, at->ai_addrlen) == 0 || errno == EINPROGRESS) {
        *out_fd = fd;
        return RP_PENDING;
    }
    rp_status status = errno == ECONNREFUSED
                           ? RP_FAIL(PEER, "connection refused: nobody listens there")
                       : may_come(errno) ? RP_FAIL_ERRNO(TIMEOUT, "it cannot be reached")
                                         : RP_FAIL_ERRNO(IO, "cannot connect to it");
    close(fd);
    return status;
}

/* One round over all addresses. A connected descriptor, or -1 with errno. An unreachable
 * address does not answer: if there are others it gets `share_ns`. */
static int connect_to_any(const struct addrinfo *list, int64_t share_ns, int64_t deadline_ns) {
    int fd = -1;
    for (const struct addrinfo *at = list; at && fd < 0; at = at->ai_next) {
        int64_t limit_ns = list->ai_next ? rpi_now_ns() + share_ns : deadline_ns;
        fd = rpi_stream_dial_once(at, limit_ns < deadline_ns ? limit_ns : deadline_ns);
    }
    return fd;
}

rp_status rpi_stream_dial_any(const struct addrinfo *list, const char *shown,
                              int64_t deadline_ns, rpi_look *look, int *out_fd) {
    int64_t share_ns = FIRST_SHARE_NS;
    int fd = -1;
    (void)rpi_look_wake_ns(look, deadline_ns); /* from now on it is time now and then */
    for (;;) {
        fd = connect_to_any(list, share_ns, deadline_ns);
        if (fd >= 0 || !may_come(errno)) break;
        if (share_ns < LONGEST_SHARE_NS) share_ns *= 2;
        int error = errno;
        int64_t next_ns = rpi_now_ns() + REDIAL_NS;
        if (next_ns < deadline_ns) rpi_sleep_until_ns(next_ns);
        RP_TRY(rpi_look_in_time(look));
        errno = error;
        if (next_ns >= deadline_ns) break;
    }
    if (fd < 0 && may_come(errno))
        return RP_FAIL_ERRNO(TIMEOUT, "timed out: nobody answered at %s", shown);
    if (fd < 0) return RP_FAIL_ERRNO(IO, "cannot connect to %s", shown);
    *out_fd = fd;
    return RP_OK;
}

rp_status rpi_stream_dial(const char *host, int port, int64_t deadline_ns, int *out_fd) {
    return rpi_stream_dial_looking(host, port, deadline_ns, NULL, out_fd);
}

rp_status rpi_stream_dial_looking(const char *host, int port, int64_t deadline_ns,
                                  rpi_look *look, int *out_fd) {
    rpi_addresses addresses;
    char shown[RPI_HOST_BYTES + 16];
    snprintf(shown, sizeof shown, "%s:%d", host ? host : "127.0.0.1", port);
    RP_TRY(rpi_addresses_find(host, port, 0, &addresses));
    rp_status status = rpi_stream_dial_any(addresses.first, shown, deadline_ns, look, out_fd);
    rpi_addresses_free(&addresses);
    return status;
}

bool rpi_stream_dials_again(rpi_redials *redials, int *fd, int64_t deadline_ns) {
    int64_t now_ns = rpi_now_ns();
    if (redials->first_ns == 0) redials->first_ns = now_ns;
    if (now_ns - redials->first_ns > REDIALS_NS || now_ns + REDIAL_NS > deadline_ns)
        return false;
    if (*fd >= 0) close(*fd);
    *fd = -1;
    rpi_sleep_until_ns(now_ns + REDIAL_NS);
    return true;
}

rp_status rpi_stream_wait(int fd, short events, int64_t deadline_ns) {
    struct pollfd wait = {.fd = fd, .events = events};
    int ready = poll(&wait, 1, rpi_poll_ms(deadline_ns));
    if (ready < 0 && errno != EINTR) return RP_FAIL_ERRNO(IO, "cannot wait for a connection");
    if (ready == 0) return RP_FAIL(TIMEOUT, "timed out: no answer before the deadline");
    return RP_OK;
}

rp_status rpi_stream_local_host(int fd, char *text, size_t bytes) {
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &length) != 0)
        return RP_FAIL_ERRNO(IO, "cannot read a connection's own address");
    int error = getnameinfo((struct sockaddr *)&address, length, text, (socklen_t)bytes, NULL,
                            0, NI_NUMERICHOST);
    if (error) return RP_FAIL(IO, "cannot show an address: %s", gai_strerror(error));
    return RP_OK;
}

bool rpi_stream_is_unanswered(int fd, int64_t limit_ns) {
    struct tcp_info info;
    socklen_t length = sizeof info;
    memset(&info, 0, sizeof info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return false;
    /* Not TCP_USER_TIMEOUT, which also ends connections to a process that is stopped for long:
     * its kernel answers, but has no more room for bytes. */
    return info.tcpi_retransmits > 0 && info.tcpi_last_ack_recv * INT64_C(1000000) >= limit_ns;
}
