/* Ranks are processes of one machine: frames pass through shared memory.
 *
 * The lower rank of a pair makes an anonymous memory file and passes it over a Unix socket of
 * the abstract namespace; both pass the event descriptor on which they sleep. None of these has
 * a name in a file system, so all of them end with the processes, however those end. The
 * sockets stay open, because their end tells at once that the process behind has ended. */
#include "net/link/transport_kinds.h"

#include "base/event.h"
#include "base/memory.h"
#include "net/bytes/close_after_fork.h"
#include "net/link/endpoint.h"
#include "net/memory/buffers.h"
#include "net/shm/shm_endpoint.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Abstract sockets belong to a network namespace, memory to a kernel. */
static bool shm_reaches(const rpi_peer_info *self, const rpi_peer_info *peer) {
    return strcmp(self->host, peer->host) == 0;
}

static void shm_close(rpi_endpoint *base) {
    rpi_shm_endpoint *endpoint = (rpi_shm_endpoint *)base;
    if (!endpoint) return;
    rpi_connector_close(endpoint->connector);
    for (int peer = 0; endpoint->links && peer < base->world; peer++)
        rpi_shm_link_close(endpoint->links[peer]);
    for (int peer = 0; endpoint->called && peer < base->world; peer++)
        rpi_shm_link_close(endpoint->called[peer]);
    rpi_free(endpoint->links);
    rpi_free(endpoint->called);
    rpi_acceptor_close(&endpoint->acceptor);
    rpi_doorbell_close(&endpoint->doorbell);
    if (endpoint->event >= 0) close(endpoint->event);
    if (endpoint->epoll_fd >= 0) close(endpoint->epoll_fd);
    rpi_secret_wipe(&endpoint->hello.secret);
    rpi_free(endpoint);
}

static void shm_close_after_fork(rpi_endpoint *base) {
    rpi_shm_endpoint *endpoint = (rpi_shm_endpoint *)base;
    for (int peer = 0; peer < base->world; peer++) {
        if (!endpoint->links[peer]) continue;
        rpi_fd_close_after_fork(&endpoint->links[peer]->socket);
        rpi_fd_close_after_fork(&endpoint->links[peer]->peer_event);
    }
    rpi_acceptor_close_after_fork(&endpoint->acceptor);
    rpi_connector_close_after_fork(endpoint->connector);
    rpi_fd_close_after_fork(&endpoint->doorbell.fd);
    rpi_fd_close_after_fork(&endpoint->event);
    rpi_fd_close_after_fork(&endpoint->epoll_fd);
}

/* Last of all, because callers may connect from here on. */
static rp_status listen_to_peers(rpi_shm_endpoint *endpoint,
                                 const rpi_endpoint_options *options) {
    int listener = -1;
    RP_TRY(rpi_unix_listen(endpoint->name, &listener));
    if (!options->on_need) {
        RP_TRY(rpi_acceptor_open(&endpoint->acceptor, &endpoint->hello, listener, NULL));
        endpoint->acceptor.look = options->look;
        return RP_OK;
    }
    RP_TRY(rpi_connector_open(&endpoint->hello, listener, &rpi_shm_connecting, endpoint,
                              &endpoint->connector));
    return rpi_shm_watch(endpoint, rpi_connector_fd(endpoint->connector), NULL);
}

static rp_status shm_fill(rpi_shm_endpoint *endpoint, const rpi_endpoint_options *options) {
    RP_TRY(rpi_alloc_array((size_t)endpoint->base.world, sizeof *endpoint->links, "links",
                           &endpoint->links));
    RP_TRY(rpi_alloc_array((size_t)endpoint->base.world, sizeof *endpoint->called, "links",
                           &endpoint->called));
    if (endpoint->base.world > RPI_SHM_DOORBELL_WORLD)
        RP_TRY(rpi_doorbell_open(endpoint->base.world, &endpoint->doorbell));
    RP_TRY(rpi_event_open(&endpoint->event));
    RP_TRY(rpi_epoll_open(&endpoint->epoll_fd));
    RP_TRY(rpi_shm_watch(endpoint, endpoint->event, NULL));
    return listen_to_peers(endpoint, options);
}

static rp_status shm_open_endpoint(const rpi_endpoint_options *options,
                                   rpi_endpoint **out_endpoint) {
    rpi_shm_endpoint *endpoint = NULL;
    RP_TRY(rpi_endpoint_check(options));
    RP_TRY(rpi_alloc(sizeof *endpoint, "an endpoint", &endpoint));
    endpoint->base = (rpi_endpoint){
        .transport = &rpi_transport_shm, .rank = options->rank, .world = options->world};
    endpoint->hello = rpi_hello_of(options);
    endpoint->hello.secret.tls = false; /* its bytes never leave the kernel */
    endpoint->zero_copy = options->zero_copy;
    endpoint->freed = rpi_buffers_freed();
    endpoint->acceptor.listener = endpoint->event = endpoint->epoll_fd = -1;
    endpoint->doorbell.fd = -1;
    rp_status status = shm_fill(endpoint, options);
    if (status != RP_OK) {
        shm_close(&endpoint->base);
        return status;
    }
    *out_endpoint = &endpoint->base;
    return RP_OK;
}

static rp_status shm_address(rpi_endpoint *base, char *text, size_t bytes) {
    rpi_shm_endpoint *endpoint = (rpi_shm_endpoint *)base;
    int length = snprintf(text, bytes, "shm:%s", endpoint->name);
    if (length < 0 || (size_t)length >= bytes)
        return RP_FAIL(INVALID, "an address needs %d bytes, not %zu", length + 1, bytes);
    return RP_OK;
}

static rp_status shm_flushed(rpi_endpoint *base) {
    (void)base; /* the memory keeps committed frames until the peer has read them */
    return RP_OK;
}

const rpi_transport rpi_transport_shm = {
    .name = "shm",
    .summary = "shared memory; ranks are processes of one host",
    .checksum = false,
    .link_descriptors = 2, /* the socket, and the peer's event */
    .reaches = shm_reaches,
    .open = shm_open_endpoint,
    .address = shm_address,
    .connect = rpi_shm_connect,
    .dial = rpi_shm_dial,
    .call = rpi_shm_call,
    .connected = rpi_shm_connected,
    .reserve = rpi_shm_reserve,
    .commit = rpi_shm_commit,
    .peek = rpi_shm_peek,
    .release = rpi_shm_release,
    .ready = rpi_shm_ready,
    .progress = rpi_shm_progress,
    .arm = rpi_shm_arm,
    .disarm = rpi_shm_disarm,
    .flushed = shm_flushed,
    .close = shm_close,
    .close_after_fork = shm_close_after_fork,
    .zero_copy = &rpi_shm_zero_copy,
};
