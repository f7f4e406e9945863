/* Frames over TCP: any machine that IP reaches.
 *
 * Sockets are non-blocking behind one edge-triggered epoll descriptor, so that sleeping is
 * sleeping on that descriptor and a pass costs one system call when nothing comes. What goes in
 * and out of a socket is tcp_stream.c's. */
#include "net/transports.h"

#include "base/clock.h"
#include "base/memory.h"
#include "net/addresses.h"
#include "net/connector.h"
#include "net/endpoint.h"
#include "net/forget.h"
#include "net/hello.h"
#include "net/stream.h"
#include "net/tcp_stream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { EVENTS = 64 };

typedef struct tcp_link {
    rpi_link base;
    rpi_tcp_stream stream;
} tcp_link;

typedef struct tcp_endpoint {
    rpi_endpoint base;
    rpi_acceptor acceptor;
    rpi_connector *connector; /* in its place where links come on need */
    rpi_hello hello;
    char host[RPI_HOST_BYTES];
    int port;
    int epoll_fd;
    tcp_link **links; /* [world] */
} tcp_endpoint;

static bool tcp_reaches(const rpi_peer_info *self, const rpi_peer_info *peer) {
    (void)self, (void)peer;
    return true;
}

static void tcp_close(rpi_endpoint *base) {
    tcp_endpoint *endpoint = (tcp_endpoint *)base;
    if (!endpoint) return;
    rpi_connector_close(endpoint->connector);
    for (int peer = 0; endpoint->links && peer < base->world; peer++) {
        if (!endpoint->links[peer]) continue;
        rpi_tcp_stream_close(&endpoint->links[peer]->stream);
        rpi_free(endpoint->links[peer]);
    }
    rpi_free(endpoint->links);
    rpi_acceptor_close(&endpoint->acceptor);
    if (endpoint->epoll_fd >= 0) close(endpoint->epoll_fd);
    rpi_free(endpoint);
}

static void tcp_forget(rpi_endpoint *base) {
    tcp_endpoint *endpoint = (tcp_endpoint *)base;
    for (int peer = 0; peer < base->world; peer++)
        if (endpoint->links[peer]) rpi_fd_forget(&endpoint->links[peer]->stream.channel.fd);
    rpi_acceptor_forget(&endpoint->acceptor);
    rpi_connector_forget(endpoint->connector);
    rpi_fd_forget(&endpoint->epoll_fd);
}

/* "tcp:HOST:PORT"; the host may hold colons of its own. */
static rp_status parse_address(const char *address, char host[RPI_HOST_BYTES], int *out_port) {
    const char *colon = strrchr(address, ':');
    size_t length = colon ? (size_t)(colon - address) : 0;
    if (strncmp(address, "tcp:", 4) != 0 || length < 5 || length - 4 >= RPI_HOST_BYTES)
        return RP_FAIL(INVALID, "'%s' is no address of a tcp endpoint", address);
    memcpy(host, address + 4, length - 4);
    host[length - 4] = 0;
    *out_port = (int)strtol(colon + 1, NULL, 10);
    return RP_OK;
}

/* The addresses of a host take turns. */
static rp_status begin_dial(const char *address, unsigned attempt, int *out_fd, int *out_ways) {
    char host[RPI_HOST_BYTES];
    rpi_addresses addresses;
    int port = 0;
    RP_TRY(parse_address(address, host, &port));
    RP_TRY(rpi_addresses_find(host, port, 0, &addresses));
    const struct addrinfo *at = addresses.first;
    for (unsigned i = attempt % (unsigned)addresses.count; i > 0; i--) at = at->ai_next;
    *out_ways = addresses.count;
    rp_status status = rpi_stream_begin_dial(at, out_fd);
    rpi_addresses_free(&addresses);
    return status;
}

static const rpi_call_kind connecting = {.dial = begin_dial};

static rp_status watch_news(tcp_endpoint *endpoint) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    int fd = rpi_connector_fd(endpoint->connector);
    if (epoll_ctl(endpoint->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        return RP_FAIL_ERRNO(IO, "cannot watch a descriptor");
    return RP_OK;
}

static rp_status tcp_fill(tcp_endpoint *endpoint, const char *bind_host, bool on_need) {
    int listener = -1;
    endpoint->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (endpoint->epoll_fd < 0) return RP_FAIL_ERRNO(IO, "cannot make an epoll descriptor");
    RP_TRY(rpi_alloc_array((size_t)endpoint->base.world, sizeof *endpoint->links, "links",
                           &endpoint->links));
    RP_TRY(rpi_stream_listen(bind_host, 0, &listener, &endpoint->port));
    if (!on_need)
        return rpi_acceptor_open(&endpoint->acceptor, &endpoint->hello, listener, NULL);
    RP_TRY(rpi_connector_open(&endpoint->hello, listener, &connecting, endpoint,
                              &endpoint->connector));
    return watch_news(endpoint);
}

static rp_status tcp_open(const rpi_endpoint_options *options, rpi_endpoint **out_endpoint) {
    tcp_endpoint *endpoint = NULL;
    const char *host = options->bind_host ? options->bind_host : "127.0.0.1";
    RP_TRY(rpi_endpoint_check(options));
    RP_TRY(rpi_alloc(sizeof *endpoint, "an endpoint", &endpoint));
    endpoint->base = (rpi_endpoint){
        .transport = &rpi_transport_tcp, .rank = options->rank, .world = options->world};
    endpoint->hello = rpi_hello_of(options);
    endpoint->base.tls = endpoint->hello.secret.tls;
    endpoint->acceptor.listener = -1;
    endpoint->epoll_fd = -1;
    snprintf(endpoint->host, sizeof endpoint->host, "%s", host);
    rp_status status = tcp_fill(endpoint, host, options->on_need);
    if (status != RP_OK) {
        tcp_close(&endpoint->base);
        return status;
    }
    *out_endpoint = &endpoint->base;
    return RP_OK;
}

static rp_status tcp_address(rpi_endpoint *base, char *text, size_t bytes) {
    tcp_endpoint *endpoint = (tcp_endpoint *)base;
    int length = snprintf(text, bytes, "tcp:%s:%d", endpoint->host, endpoint->port);
    if (length < 0 || (size_t)length >= bytes)
        return RP_FAIL(INVALID, "an address needs %d bytes, not %zu", length + 1, bytes);
    return RP_OK;
}

static rp_status dial(const tcp_endpoint *endpoint, int peer, const char *address,
                      int64_t deadline_ns, rpi_channel *channel) {
    char host[RPI_HOST_BYTES];
    int port = 0;
    RP_TRY(parse_address(address, host, &port));
    rp_status status;
    rpi_redials redials = {0};
    do {
        rpi_channel_close(channel);
        status = rpi_stream_dial(host, port, deadline_ns, &channel->fd);
        if (status == RP_OK)
            status = rpi_hello_exchange(channel, &endpoint->hello, peer, deadline_ns);
    } while (status == RP_PEER && rpi_stream_dials_again(&redials, &channel->fd, deadline_ns));
    if (status != RP_OK) rpi_channel_close(channel);
    return status;
}

/* Owns the connection from here on. */
static rp_status add_link(tcp_endpoint *endpoint, int peer, rpi_channel channel) {
    tcp_link *link = NULL;
    rp_status status = rpi_alloc(sizeof *link, "a link", &link);
    if (status != RP_OK) {
        rpi_channel_close(&channel);
        return status;
    }
    link->base = (rpi_link){.endpoint = &endpoint->base, .peer = peer};
    status =
        rpi_tcp_stream_open(&link->stream, &link->base, channel, endpoint->hello.frame_bytes);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                .data.ptr = link};
    if (status == RP_OK &&
        epoll_ctl(endpoint->epoll_fd, EPOLL_CTL_ADD, channel.fd, &event) != 0)
        status = RP_FAIL_ERRNO(IO, "cannot watch a connection");
    if (status != RP_OK) {
        rpi_tcp_stream_close(&link->stream);
        rpi_free(link);
        return status;
    }
    endpoint->links[peer] = link;
    return RP_OK;
}

static rp_status tcp_connect(rpi_endpoint *base, int peer, const char *address,
                             int64_t deadline_ns, rpi_link **out_link) {
    tcp_endpoint *endpoint = (tcp_endpoint *)base;
    rpi_channel channel = {.fd = -1};
    RP_TRY(rpi_peer_check(base, peer));
    if (endpoint->links[peer]) return RP_FAIL(STATE, "rank %d is connected already", peer);
    rp_status status =
        peer < base->rank ? dial(endpoint, peer, address, deadline_ns, &channel)
                          : rpi_acceptor_wait(&endpoint->acceptor, peer, deadline_ns, &channel);
    if (status != RP_OK)
        return rpi_fail_context(status, "connecting to rank %d at %s: ", peer, address);
    RP_TRY(add_link(endpoint, peer, channel));
    *out_link = &endpoint->links[peer]->base;
    return RP_OK;
}

static rp_status tcp_call(rpi_endpoint *base, int peer, const char *address) {
    RP_TRY(rpi_peer_check(base, peer));
    return rpi_connector_want(((tcp_endpoint *)base)->connector, peer, address);
}

static rp_status tcp_met(rpi_endpoint *base, int *out_peer, rpi_link **out_link) {
    tcp_endpoint *endpoint = (tcp_endpoint *)base;
    rpi_call *call = rpi_connector_met(endpoint->connector);
    if (!call) return RP_PENDING;
    *out_peer = call->peer;
    rp_status status = call->status;
    if (status != RP_OK) {
        status = rpi_fail(status, __FILE__, __LINE__, "%s", call->text);
    } else {
        status = add_link(endpoint, call->peer, call->channel);
        call->channel = (rpi_channel){.fd = -1};
        if (status == RP_OK) *out_link = &endpoint->links[call->peer]->base;
    }
    rpi_call_free(call);
    return status;
}

static rp_status tcp_lend(rpi_link *link, size_t bytes, void **out_region) {
    return rpi_tcp_stream_lend(&((tcp_link *)link)->stream, bytes, out_region);
}

static rp_status tcp_post(rpi_link *link, size_t bytes) {
    return rpi_tcp_stream_post(&((tcp_link *)link)->stream, bytes);
}

static rp_status tcp_peek(rpi_link *link, const void **out_frame, size_t *out_bytes) {
    return rpi_tcp_stream_peek(&((tcp_link *)link)->stream, out_frame, out_bytes);
}

static void tcp_release(rpi_link *link) {
    rpi_tcp_stream_release(&((tcp_link *)link)->stream);
}

static rp_status tcp_progress(rpi_endpoint *base) {
    tcp_endpoint *endpoint = (tcp_endpoint *)base;
    struct epoll_event events[EVENTS];
    int count = epoll_wait(endpoint->epoll_fd, events, EVENTS, 0);
    if (count < 0 && errno != EINTR) return RP_FAIL_ERRNO(IO, "cannot watch connections");
    for (int i = 0; i < count; i++) {
        tcp_link *link = events[i].data.ptr; /* NULL: met() has something */
        if (link) rpi_tcp_stream_event(&link->stream, events[i].events);
    }
    for (int peer = 0; peer < base->world; peer++)
        if (endpoint->links[peer]) rpi_tcp_stream_move(&endpoint->links[peer]->stream);
    return RP_OK;
}

static bool tcp_arm(rpi_endpoint *base, int *out_fd, int64_t *wake_at_ns) {
    tcp_endpoint *endpoint = (tcp_endpoint *)base;
    *out_fd = endpoint->epoll_fd;
    *wake_at_ns = RPI_NEVER_NS;
    for (int peer = 0; peer < base->world; peer++)
        if (endpoint->links[peer] && rpi_tcp_stream_has_news(&endpoint->links[peer]->stream))
            return true;
    return false;
}

static void tcp_disarm(rpi_endpoint *base) {
    (void)base; /* the epoll descriptor counts on by itself */
}

static rp_status tcp_flushed(rpi_endpoint *base) {
    tcp_endpoint *endpoint = (tcp_endpoint *)base;
    for (int peer = 0; peer < base->world; peer++) {
        if (!endpoint->links[peer]) continue;
        const rpi_tcp_stream *stream = &endpoint->links[peer]->stream;
        /* On a failed connection nobody is there to receive. */
        if (stream->fault.status == RP_OK && stream->queue.count > 0) return RP_PENDING;
    }
    return RP_OK;
}

static rp_status tcp_delivered(rpi_endpoint *base) {
    const tcp_endpoint *endpoint = (const tcp_endpoint *)base;
    for (int peer = 0; peer < base->world; peer++)
        if (endpoint->links[peer] &&
            !rpi_tcp_stream_is_delivered(&endpoint->links[peer]->stream))
            return RP_PENDING;
    return RP_OK;
}

const rpi_transport rpi_transport_tcp = {
    .name = "tcp",
    .summary = "TCP connections; any hosts that IP joins",
    .checksum = true,
    .link_descriptors = 1,
    .reaches = tcp_reaches,
    .open = tcp_open,
    .address = tcp_address,
    .connect = tcp_connect,
    .call = tcp_call,
    .met = tcp_met,
    .lend = tcp_lend,
    .post = tcp_post,
    .peek = tcp_peek,
    .release = tcp_release,
    .progress = tcp_progress,
    .arm = tcp_arm,
    .disarm = tcp_disarm,
    .flushed = tcp_flushed,
    .delivered = tcp_delivered,
    .close = tcp_close,
    .forget = tcp_forget,
};
