/* Frames over TCP: any machine that IP reaches.
 *
 * Sockets are non-blocking behind one edge-triggered epoll descriptor, so that sleeping is
 * sleeping on that descriptor and a pass costs one system call when nothing comes. What goes in
 * and out of a socket is tcp_stream.c's, what goes by which of several tcp_multistream.c's.
 *
 * Of the addresses that a peer shows each stream of a link takes another one, in turns, and the
 * kernel the interface that leads there; where one does not answer the next one serves. */
#include "net/link/transport_kinds.h"

#include "base/clock.h"
#include "base/event.h"
#include "base/log.h"
#include "base/memory.h"
#include "net/bytes/close_after_fork.h"
#include "net/link/acceptor.h"
#include "net/link/connector.h"
#include "net/link/endpoint.h"
#include "net/socket/addresses.h"
#include "net/socket/stream.h"
#include "net/tcp/tcp_multistream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { EVENTS = 64, WAYS_BYTES = 800 };

typedef struct tcp_link {
    rpi_link base;
    rpi_tcp_multistream multistream;
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
    tcp_endpoint *endpoint = (tcp_endpoint *)base;
    for (int peer = 0; peer < base->world; peer++)
        if (endpoint->links[peer])
            rpi_tcp_multistream_close_after_fork(&endpoint->links[peer]->multistream);
    rpi_acceptor_close_after_fork(&endpoint->acceptor);
    rpi_connector_close_after_fork(endpoint->connector);
    rpi_fd_close_after_fork(&endpoint->epoll_fd);
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
    rpi_addresses_turn(&addresses, attempt);
    *out_ways = addresses.count;
    rp_status status = rpi_stream_begin_dial(addresses.first, out_fd);
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

static rp_status tcp_fill(tcp_endpoint *endpoint, const char *host,
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
    tcp_endpoint *endpoint = (tcp_endpoint *)base;
    int length = snprintf(text, bytes, "tcp:%s:%d", endpoint->host, endpoint->port);
    if (length < 0 || (size_t)length >= bytes)
        return RP_FAIL(INVALID, "an address needs %d bytes, not %zu", length + 1, bytes);
    return RP_OK;
}

/* Whoever hangs up before it has answered may have had too many callers. */
static rp_status dial_in_turn(const rpi_hello *self, int peer, const rpi_addresses *addresses,
                              const char *shown, int64_t deadline_ns, rpi_look *look,
                              rpi_channel *channel) {
    rp_status status;
    rpi_redials redials = {0};
    do {
        rpi_channel_close(channel);
        status = rpi_stream_dial_any(addresses->first, shown, deadline_ns, look, &channel->fd);
        if (status == RP_OK) status = rpi_hello_exchange(channel, self, peer, deadline_ns);
    } while (status == RP_PEER && rpi_stream_dials_again(&redials, &channel->fd, deadline_ns));
    return status;
}

/* What listens at one of several addresses may be another host's, as those of bridges are. */
static rp_status dial_one(const rpi_hello *self, int peer, rpi_addresses *addresses,
                          const char *shown, int64_t deadline_ns, rpi_look *look,
                          rpi_channel *channel) {
    rp_status status = RP_OK;
    for (int misfits = 0; misfits < addresses->count; misfits++) {
        rpi_addresses_turn(addresses, (unsigned)(self->stream + misfits));
        status = dial_in_turn(self, peer, addresses, shown, deadline_ns, look, channel);
        if (status != RP_MISMATCH && status != RP_CORRUPT) break;
    }
    return status;
}

static rp_status dial(tcp_endpoint *endpoint, int peer, const char *address,
                      int64_t deadline_ns, rpi_channel *channels) {
    char host[RPI_HOST_BYTES], shown[RPI_HOST_BYTES + 16];
    rpi_addresses addresses;
    rp_status status = RP_OK;
    int port = 0;
    RP_TRY(parse_address(address, host, &port));
    snprintf(shown, sizeof shown, "%s:%d", host, port);
    RP_TRY(rpi_addresses_find(host, port, 0, &addresses));
    rpi_hello self = endpoint->hello;
    for (self.stream = 0; self.stream < self.streams && status == RP_OK; self.stream++)
        status = dial_one(&self, peer, &addresses, shown, deadline_ns, &endpoint->acceptor.look,
                          &channels[self.stream]);
    rpi_addresses_free(&addresses);
    rpi_secret_wipe(&self.secret);
    return status;
}

static rp_status await(tcp_endpoint *endpoint, int peer, int64_t deadline_ns,
                       rpi_channel *channels) {
    for (int i = 0; i < endpoint->hello.streams; i++)
        RP_TRY(rpi_acceptor_wait(&endpoint->acceptor, peer, i, deadline_ns, &channels[i]));
    return RP_OK;
}

static rp_status watch_stream(const tcp_endpoint *endpoint, rpi_tcp_stream *stream) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                .data.ptr = stream};
    if (epoll_ctl(endpoint->epoll_fd, EPOLL_CTL_ADD, stream->channel.fd, &event) != 0)
        return RP_FAIL_ERRNO(IO, "cannot watch a connection");
    return RP_OK;
}

/* Takes over the connections, also when it fails. */
static rp_status open_link(const tcp_endpoint *endpoint, tcp_link *link,
                           const rpi_channel *channels) {
    int count = endpoint->hello.streams;
    RP_TRY(rpi_tcp_multistream_open(&link->multistream, &link->base, channels, count,
                                    endpoint->hello.frame_bytes));
    for (int i = 0; i < count; i++)
        RP_TRY(watch_stream(endpoint, &link->multistream.streams[i]));
    return RP_OK;
}

static void say_ways(const tcp_link *link) {
    char text[WAYS_BYTES];
    const rpi_tcp_multistream *multistream = &link->multistream;
    if (multistream->count == 1) return;
    rpi_tcp_multistream_describe(multistream, text, sizeof text);
    rpi_log(RP_LOG_INFO, "rank %d to rank %d, %d streams: %s", link->base.endpoint->rank,
            link->base.peer, multistream->count, text);
}

static void close_all(rpi_channel *channels) {
    for (int i = 0; i < RPI_STREAMS_MAX; i++) rpi_channel_close(&channels[i]);
}

/* Owns the connections from here on. */
static rp_status add_link(tcp_endpoint *endpoint, int peer, rpi_channel *channels) {
    tcp_link *link = NULL;
    rp_status status = rpi_alloc(sizeof *link, "a link", &link);
    if (status != RP_OK) {
        close_all(channels);
        return status;
    }
    link->base = (rpi_link){.endpoint = &endpoint->base, .peer = peer};
    status = open_link(endpoint, link, channels);
    if (status != RP_OK) {
        rpi_tcp_multistream_close(&link->multistream);
        rpi_free(link);
        return status;
    }
    endpoint->links[peer] = link;
    say_ways(link);
    return RP_OK;
}

static void no_channels(rpi_channel channels[RPI_STREAMS_MAX]) {
    for (int i = 0; i < RPI_STREAMS_MAX; i++) channels[i] = (rpi_channel){.fd = -1};
}

static rp_status tcp_connect(rpi_endpoint *base, int peer, const char *address,
                             int64_t deadline_ns, rpi_link **out_link) {
    tcp_endpoint *endpoint = (tcp_endpoint *)base;
    rpi_channel channels[RPI_STREAMS_MAX];
    no_channels(channels);
    RP_TRY(rpi_peer_check(base, peer));
    if (endpoint->links[peer]) return RP_FAIL(STATE, "rank %d is connected already", peer);
    rp_status status = peer < base->rank ? dial(endpoint, peer, address, deadline_ns, channels)
                                         : await(endpoint, peer, deadline_ns, channels);
    if (status != RP_OK) {
        close_all(channels);
        return rpi_fail_context(status, "connecting to rank %d at %s: ", peer, address);
    }
    RP_TRY(add_link(endpoint, peer, channels));
    *out_link = &endpoint->links[peer]->base;
    return RP_OK;
}

static rp_status tcp_call(rpi_endpoint *base, int peer, const char *address) {
    RP_TRY(rpi_peer_check(base, peer));
    return rpi_connector_want(((tcp_endpoint *)base)->connector, peer, address);
}

/* What stands is the link's from here on. */
static rp_status take_call(tcp_endpoint *endpoint, rpi_call *call) {
    rpi_channel channels[RPI_STREAMS_MAX];
    int peer = call->peer;
    no_channels(channels);
    for (rpi_call *each = call; each; each = each->beside) {
        channels[each->stream] = each->channel;
        each->channel = (rpi_channel){.fd = -1};
    }
    return add_link(endpoint, peer, channels);
}

static rp_status tcp_connected(rpi_endpoint *base, int *out_peer, rpi_link **out_link) {
    tcp_endpoint *endpoint = (tcp_endpoint *)base;
    rpi_call *call = rpi_connector_connected(endpoint->connector);
    if (!call) return RP_PENDING;
    *out_peer = call->peer;
    rp_status status = call->status;
    if (status != RP_OK) {
        status = rpi_fail(status, __FILE__, __LINE__, "%s", call->text);
    } else {
        status = take_call(endpoint, call);
        if (status == RP_OK) *out_link = &endpoint->links[call->peer]->base;
    }
    rpi_call_free(call);
    return status;
}

static rp_status tcp_reserve(rpi_link *link, size_t bytes, void **out_region) {
    return rpi_tcp_multistream_reserve(&((tcp_link *)link)->multistream, bytes, link->traffic,
                                       out_region);
}

static rp_status tcp_commit(rpi_link *link, size_t bytes) {
    return rpi_tcp_multistream_commit(&((tcp_link *)link)->multistream, bytes, link->traffic);
}

static rp_status tcp_peek(rpi_link *link, const void **out_frame, size_t *out_bytes) {
    return rpi_tcp_multistream_peek(&((tcp_link *)link)->multistream, out_frame, out_bytes);
}

static void tcp_release(rpi_link *link) {
    rpi_tcp_multistream_release(&((tcp_link *)link)->multistream);
}

static rp_status tcp_progress(rpi_endpoint *base) {
    tcp_endpoint *endpoint = (tcp_endpoint *)base;
    struct epoll_event events[EVENTS];
    int count = epoll_wait(endpoint->epoll_fd, events, EVENTS, 0);
    if (count < 0 && errno != EINTR) return RP_FAIL_ERRNO(IO, "cannot watch connections");
    for (int i = 0; i < count; i++) {
        rpi_tcp_stream *stream = events[i].data.ptr; /* NULL: met() has something */
        if (stream) rpi_tcp_stream_event(stream, events[i].events);
    }
    for (int peer = 0; peer < base->world; peer++)
        if (endpoint->links[peer])
            rpi_tcp_multistream_move(&endpoint->links[peer]->multistream);
    return RP_OK;
}

static bool tcp_arm(rpi_endpoint *base, int *out_fd, int64_t *wake_at_ns) {
    tcp_endpoint *endpoint = (tcp_endpoint *)base;
    *out_fd = endpoint->epoll_fd;
    *wake_at_ns = RPI_NEVER_NS;
    for (int peer = 0; peer < base->world; peer++)
        if (endpoint->links[peer] &&
            rpi_tcp_multistream_has_news(&endpoint->links[peer]->multistream))
            return true;
    return false;
}

static void tcp_disarm(rpi_endpoint *base) {
    (void)base; /* the epoll descriptor counts on by itself */
}

static rp_status tcp_flushed(rpi_endpoint *base) {
    const tcp_endpoint *endpoint = (const tcp_endpoint *)base;
    for (int peer = 0; peer < base->world; peer++)
        if (endpoint->links[peer] &&
            !rpi_tcp_multistream_is_flushed(&endpoint->links[peer]->multistream))
            return RP_PENDING;
    return RP_OK;
}

static rp_status tcp_delivered(rpi_endpoint *base) {
    const tcp_endpoint *endpoint = (const tcp_endpoint *)base;
    for (int peer = 0; peer < base->world; peer++)
        if (endpoint->links[peer] &&
            !rpi_tcp_multistream_is_delivered(&endpoint->links[peer]->multistream))
            return RP_PENDING;
    return RP_OK;
}

static void tcp_describe(rpi_link *link, char *text, size_t bytes) {
    rpi_tcp_multistream_describe(&((tcp_link *)link)->multistream, text, bytes);
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
    .connect = tcp_connect,
    .call = tcp_call,
    .connected = tcp_connected,
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
