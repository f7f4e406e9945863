/* How two processes make a link over TCP: the higher rank calls the lower. */
#include "base/log.h"
#include "base/memory.h"
#include "net/link/endpoint.h"
#include "net/socket/stream.h"
#include "net/tcp/tcp_endpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

enum { WAYS_BYTES = 800 };

/* "tcp:HOST:PORT"; the host may have colons of its own. */
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

const rpi_call_kind rpi_tcp_connecting = {.dial = begin_dial};

/* A peer that closes before it has answered may have had too many callers. */
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

/* At one of several addresses another host may listen, as at those of bridges. */
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

static rp_status dial(rpi_tcp_endpoint *endpoint, int peer, const char *address,
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

static rp_status await(rpi_tcp_endpoint *endpoint, int peer, int64_t deadline_ns,
                       rpi_channel *channels) {
    for (int i = 0; i < endpoint->hello.streams; i++)
        RP_TRY(rpi_acceptor_wait(&endpoint->acceptor, peer, i, deadline_ns, &channels[i]));
    return RP_OK;
}

static rp_status watch_stream(const rpi_tcp_endpoint *endpoint, rpi_tcp_stream *stream) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                .data.ptr = stream};
    if (epoll_ctl(endpoint->epoll_fd, EPOLL_CTL_ADD, stream->channel.fd, &event) != 0)
        return RP_FAIL_ERRNO(IO, "cannot watch a connection");
    return RP_OK;
}

/* Takes over the connections, also if it fails. */
static rp_status open_link(const rpi_tcp_endpoint *endpoint, rpi_tcp_link *link,
                           const rpi_channel *channels) {
    int count = endpoint->hello.streams;
    RP_TRY(rpi_tcp_multistream_open(&link->multistream, &link->base, channels, count,
                                    endpoint->hello.frame_bytes));
    for (int i = 0; i < count; i++)
        RP_TRY(watch_stream(endpoint, &link->multistream.streams[i]));
    return RP_OK;
}

static void say_ways(const rpi_tcp_link *link) {
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
static rp_status add_link(rpi_tcp_endpoint *endpoint, int peer, rpi_channel *channels) {
    rpi_tcp_link *link = NULL;
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

rp_status rpi_tcp_connect(rpi_endpoint *base, int peer, const char *address,
                          int64_t deadline_ns, rpi_link **out_link) {
    rpi_tcp_endpoint *endpoint = (rpi_tcp_endpoint *)base;
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

rp_status rpi_tcp_call(rpi_endpoint *base, int peer, const char *address) {
    RP_TRY(rpi_peer_check(base, peer));
    return rpi_connector_request(((rpi_tcp_endpoint *)base)->connector, peer, address);
}

/* A finished connection belongs to the link from here on. */
static rp_status take_call(rpi_tcp_endpoint *endpoint, rpi_call *call) {
    rpi_channel channels[RPI_STREAMS_MAX];
    int peer = call->peer;
    no_channels(channels);
    for (rpi_call *each = call; each; each = each->beside) {
        channels[each->stream] = each->channel;
        each->channel = (rpi_channel){.fd = -1};
    }
    return add_link(endpoint, peer, channels);
}

rp_status rpi_tcp_connected(rpi_endpoint *base, int *out_peer, rpi_link **out_link) {
    rpi_tcp_endpoint *endpoint = (rpi_tcp_endpoint *)base;
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
