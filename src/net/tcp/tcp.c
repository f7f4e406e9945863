/* Frames over TCP: any machine that IP reaches.
 *
 * Sockets are non-blocking behind one edge-triggered epoll descriptor, so that a rank sleeps on
 * that descriptor, and an iteration costs one system call if nothing arrives. tcp_stream.c
 * moves bytes in and out of a socket, tcp_multistream.c distributes frames over several.
 *
 * The streams of a link take the addresses of a peer in turn, and the kernel chooses the
 * interface for each; if one does not answer the next one is used. */
#include "net/link/transport_kinds.h"

#include "base/clock.h"
#include "base/event.h"
#include "base/memory.h"
#include "net/bytes/close_after_fork.h"
#include "net/link/endpoint.h"
#include "net/socket/stream.h"
#include "net/tcp/tcp_endpoint.h"

#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { EVENTS = 64 };

static bool tcp_reaches(const rpi_peer_info *self, const rpi_peer_info *peer) {
    (void)self, (void)peer;
    return true;
}

static void tcp_close(rpi_endpoint *base) {
    rpi_tcp_endpoint *endpoint = (rpi_tcp_endpoint *)base;
    if (!endpoint) return;
    rpi_connector_close(endpoint->connector);
    for (int peer = 0; endpoint->links && peer < base->world; peer++) {
        if (!endpoint->links[peer]) continue;
        rpi_tcp_multistream_close(&endpoint->links[peer]->multistream);
        rpi_free(endpoint->links[peer]);
    }
    rpi_free(endpoint->links);
    rpi_acceptor_close(&endpoint->acceptor);
    if (endpoint->epoll_fd >= 0) close(endpoint->epoll_fd);
    rpi_secret_wipe(&endpoint->hello.secret);
    rpi_free(endpoint);
}

static void tcp_close_after_fork(rpi_endpoint *base) {
    rpi_tcp_endpoint *endpoint = (rpi_tcp_endpoint *)base;
    for (int peer = 0; peer < base->world; peer++)
        if (endpoint->links[peer])
            rpi_tcp_multistream_close_after_fork(&endpoint->links[peer]->multistream);
    rpi_acceptor_close_after_fork(&endpoint->acceptor);
    rpi_connector_close_after_fork(endpoint->connector);
    rpi_fd_close_after_fork(&endpoint->epoll_fd);
}

static rp_status watch_connector(rpi_tcp_endpoint *endpoint) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    int fd = rpi_connector_fd(endpoint->connector);
    if (epoll_ctl(endpoint->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        return RP_FAIL_ERRNO(IO, "cannot watch a descriptor");
    return RP_OK;
}

static rp_status tcp_fill(rpi_tcp_endpoint *endpoint, const char *host,
                          const rpi_endpoint_options *options) {
    int listener = -1;
    RP_TRY(rpi_epoll_open(&endpoint->epoll_fd));
    RP_TRY(rpi_alloc_array((size_t)endpoint->base.world, sizeof *endpoint->links, "links",
                           &endpoint->links));
    RP_TRY(rpi_stream_listen(host, 0, &listener, &endpoint->port));
    if (!options->on_need) {
        RP_TRY(rpi_acceptor_open(&endpoint->acceptor, &endpoint->hello, listener, NULL));
        endpoint->acceptor.look = options->look;
        return RP_OK;
    }
    RP_TRY(rpi_connector_open(&endpoint->hello, listener, &rpi_tcp_connecting, endpoint,
                              &endpoint->connector));
    return watch_connector(endpoint);
}

static rp_status tcp_open(const rpi_endpoint_options *options, rpi_endpoint **out_endpoint) {
    rpi_tcp_endpoint *endpoint = NULL;
    const char *host = options->bind_host ? options->bind_host : "127.0.0.1";
    RP_TRY(rpi_endpoint_check(options));
    RP_TRY(rpi_alloc(sizeof *endpoint, "an endpoint", &endpoint));
    endpoint->base = (rpi_endpoint){
        .transport = &rpi_transport_tcp, .rank = options->rank, .world = options->world};
    endpoint->hello = rpi_hello_of(options);
    if (options->streams) endpoint->hello.streams = options->streams;
    endpoint->base.tls = endpoint->hello.secret.tls;
    endpoint->acceptor.listener = -1;
    endpoint->epoll_fd = -1;
    snprintf(endpoint->host, sizeof endpoint->host, "%s", host);
    rp_status status = tcp_fill(endpoint, host, options);
    if (status != RP_OK) {
        tcp_close(&endpoint->base);
        return status;
    }
    *out_endpoint = &endpoint->base;
    return RP_OK;
}

static rp_status tcp_address(rpi_endpoint *base, char *text, size_t bytes) {
    rpi_tcp_endpoint *endpoint = (rpi_tcp_endpoint *)base;
    int length = snprintf(text, bytes, "tcp:%s:%d", endpoint->host, endpoint->port);
    if (length < 0 || (size_t)length >= bytes)
        return RP_FAIL(INVALID, "an address needs %d bytes, not %zu", length + 1, bytes);
    return RP_OK;
}

static rp_status tcp_reserve(rpi_link *link, size_t bytes, void **out_region) {
    return rpi_tcp_multistream_reserve(&((rpi_tcp_link *)link)->multistream, bytes,
                                       link->traffic, out_region);
}

static rp_status tcp_commit(rpi_link *link, size_t bytes) {
    return rpi_tcp_multistream_commit(&((rpi_tcp_link *)link)->multistream, bytes,
                                      link->traffic);
}

static rp_status tcp_peek(rpi_link *link, const void **out_frame, size_t *out_bytes) {
    return rpi_tcp_multistream_peek(&((rpi_tcp_link *)link)->multistream, out_frame, out_bytes);
}

static void tcp_release(rpi_link *link) {
    rpi_tcp_multistream_release(&((rpi_tcp_link *)link)->multistream);
}

static rp_status tcp_progress(rpi_endpoint *base) {
    rpi_tcp_endpoint *endpoint = (rpi_tcp_endpoint *)base;
    struct epoll_event events[EVENTS];
    int count = epoll_wait(endpoint->epoll_fd, events, EVENTS, 0);
    if (count < 0 && errno != EINTR) return RP_FAIL_ERRNO(IO, "cannot watch connections");
    for (int i = 0; i < count; i++) {
        rpi_tcp_stream *stream = events[i].data.ptr; /* NULL: connected() would return one */
        if (stream) rpi_tcp_stream_event(stream, events[i].events);
    }
    for (int peer = 0; peer < base->world; peer++)
        if (endpoint->links[peer])
            rpi_tcp_multistream_move(&endpoint->links[peer]->multistream);
    return RP_OK;
}

static bool tcp_arm(rpi_endpoint *base, int *out_fd, int64_t *wake_at_ns) {
    rpi_tcp_endpoint *endpoint = (rpi_tcp_endpoint *)base;
    *out_fd = endpoint->epoll_fd;
    *wake_at_ns = RPI_NEVER_NS;
    for (int peer = 0; peer < base->world; peer++)
        if (endpoint->links[peer] &&
            rpi_tcp_multistream_is_ready(&endpoint->links[peer]->multistream))
            return true;
    return false;
}

static void tcp_disarm(rpi_endpoint *base) {
    (void)base; /* the epoll descriptor stays readable by itself */
}

/* RP_PENDING: of some link it is not. */
static rp_status of_all_links(const rpi_endpoint *base,
                              bool (*is)(const rpi_tcp_multistream *multistream)) {
    const rpi_tcp_endpoint *endpoint = (const rpi_tcp_endpoint *)base;
    for (int peer = 0; peer < base->world; peer++)
        if (endpoint->links[peer] && !is(&endpoint->links[peer]->multistream))
            return RP_PENDING;
    return RP_OK;
}

static rp_status tcp_flushed(rpi_endpoint *base) {
    return of_all_links(base, rpi_tcp_multistream_is_flushed);
}

static rp_status tcp_delivered(rpi_endpoint *base) {
    return of_all_links(base, rpi_tcp_multistream_is_delivered);
}

static void tcp_describe(rpi_link *link, char *text, size_t bytes) {
    rpi_tcp_multistream_describe(&((rpi_tcp_link *)link)->multistream, text, bytes);
}

const rpi_transport rpi_transport_tcp = {
    .name = "tcp",
    .summary = "TCP connections; any hosts that IP joins",
    .checksum = true,
    .link_descriptors = 1,
    .multistream = true,
    .reaches = tcp_reaches,
    .open = tcp_open,
    .address = tcp_address,
    .connect = rpi_tcp_connect,
    .call = rpi_tcp_call,
    .connected = rpi_tcp_connected,
    .reserve = tcp_reserve,
    .commit = tcp_commit,
    .peek = tcp_peek,
    .release = tcp_release,
    .progress = tcp_progress,
    .arm = tcp_arm,
    .disarm = tcp_disarm,
    .flushed = tcp_flushed,
    .delivered = tcp_delivered,
    .describe = tcp_describe,
    .close = tcp_close,
    .close_after_fork = tcp_close_after_fork,
};
