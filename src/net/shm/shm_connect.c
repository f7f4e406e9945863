/* How two processes of one machine make a link: they connect at the lower rank's socket, and
 * pass each other descriptors (docs/wire.md). */
#include "base/memory.h"
#include "base/states.h"
#include "net/link/endpoint.h"
#include "net/memory/sealed_memory.h"
#include "net/shm/shm_endpoint.h"
#include "net/socket/pass_fd.h"
#include "net/socket/stream.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

static const rpi_states stages[] = {
    [RPI_SHM_NEW] = RPI_STATE(RPI_SHM_CALLED) | RPI_STATE(RPI_SHM_UP),
    [RPI_SHM_CALLED] = RPI_STATE(RPI_SHM_GREETED) | RPI_STATE(RPI_SHM_NEW),
    [RPI_SHM_GREETED] = RPI_STATE(RPI_SHM_UP) | RPI_STATE(RPI_SHM_NEW),
    [RPI_SHM_UP] = RPI_STATE(RPI_SHM_GONE),
    [RPI_SHM_GONE] = 0,
};

void rpi_shm_enter(rpi_shm_link *link, rpi_shm_stage stage) {
    RPI_ENTER(stages, link->stage, stage);
}

static rp_status map_sealed(int fd, size_t bytes, void **out_memory) {
    RP_TRY(rpi_sealed_check(fd, bytes));
    return rpi_sealed_map(fd, bytes, PROT_READ | PROT_WRITE, out_memory);
}

/* The descriptors by which a peer wakes us: our event descriptor, and our doorbell if there is
 * one. Returns their number. */
static int own_fds(const rpi_shm_endpoint *endpoint, int fds[2]) {
    fds[0] = endpoint->event;
    fds[1] = endpoint->doorbell.fd;
    return endpoint->doorbell.page ? 2 : 1;
}

/* Of the peer, the same. */
static rp_status take_fds(const rpi_shm_endpoint *endpoint, rpi_shm_link *link,
                          const int fds[2]) {
    void *page = NULL;
    link->peer_event = fds[0];
    if (!endpoint->doorbell.page) return RP_OK;
    rp_status status = map_sealed(fds[1], endpoint->doorbell.bytes, &page);
    close(fds[1]);
    link->peer_doorbell = page;
    return status;
}

/* The lower rank makes the memory and passes it with the descriptors that wake it. Those that
 * wake the peer have come after its hello. */
static rp_status offer(const rpi_shm_endpoint *endpoint, rpi_shm_link *link,
                       int64_t deadline_ns) {
    int fds[3] = {-1};
    RP_TRY(rpi_sealed_make(link->memory_bytes, &fds[0]));
    int count = own_fds(endpoint, fds + 1);
    rp_status status =
        rpi_sealed_map(fds[0], link->memory_bytes, PROT_READ | PROT_WRITE, &link->memory);
    if (status == RP_OK) status = rpi_fds_send(link->socket, fds, 1 + count, deadline_ns);
    close(fds[0]);
    RP_TRY(status);
    RP_TRY(rpi_fds_receive(link->socket, fds, count, deadline_ns));
    return take_fds(endpoint, link, fds);
}

static rp_status accept_offer(const rpi_shm_endpoint *endpoint, rpi_shm_link *link,
                              int64_t deadline_ns) {
    int theirs[3], own[2], count = own_fds(endpoint, own);
    RP_TRY(rpi_fds_receive(link->socket, theirs, 1 + count, deadline_ns));
    rp_status status = take_fds(endpoint, link, theirs + 1);
    if (status == RP_OK) status = map_sealed(theirs[0], link->memory_bytes, &link->memory);
    close(theirs[0]);
    return status;
}

/* ---- the higher rank calls: three steps, of which the first waits for nobody ---- */

static rp_status call(const rpi_shm_endpoint *endpoint, rpi_shm_link *link, const char *address,
                      int64_t deadline_ns) {
    if (strncmp(address, "shm:", 4) != 0)
        return RP_FAIL(INVALID, "that is no address of a shm endpoint");
    RP_TRY(rpi_unix_dial(address + 4, deadline_ns, &link->socket)); /* RP_PEER: it has ended */
    RP_TRY(rpi_check_same_user(link->socket));
    RP_TRY(rpi_hello_call(link->socket, &endpoint->hello, link->base.peer, deadline_ns,
                          link->call));
    rpi_shm_enter(link, RPI_SHM_CALLED);
    return RP_OK;
}

/* It passes its own descriptors at once, because the lower rank need not wait for them. A peer
 * that has closed by then may have sent the reason. */
static rp_status send_hello(const rpi_shm_endpoint *endpoint, rpi_shm_link *link,
                            int64_t deadline_ns) {
    int own[2], count = own_fds(endpoint, own);
    RP_TRY(rpi_hello_send(link->socket, &endpoint->hello, link->base.peer, link->call,
                          deadline_ns));
    rp_status status = rpi_fds_send(link->socket, own, count, deadline_ns);
    if (status != RP_OK && status != RP_PEER) return status;
    rpi_shm_enter(link, RPI_SHM_GREETED);
    return RP_OK;
}

static rp_status receive_hello(const rpi_shm_endpoint *endpoint, rpi_shm_link *link,
                               int64_t deadline_ns) {
    return rpi_hello_receive(&(rpi_channel){.fd = link->socket}, &endpoint->hello,
                             link->base.peer, deadline_ns);
}

/* Continue after dial(). RP_PEER after the call: it closed the connection, perhaps because of
 * too many callers. */
static rp_status connect_lower(const rpi_shm_endpoint *endpoint, rpi_shm_link *link,
                               const char *address, int64_t deadline_ns) {
    rpi_redials redials = {0};
    for (;;) {
        rp_status status = RP_OK;
        if (link->stage == RPI_SHM_NEW) RP_TRY(call(endpoint, link, address, deadline_ns));
        if (link->stage == RPI_SHM_CALLED) status = send_hello(endpoint, link, deadline_ns);
        if (status == RP_OK) status = receive_hello(endpoint, link, deadline_ns);
        if (status == RP_OK) return accept_offer(endpoint, link, deadline_ns);
        if (status != RP_PEER) return status;
        if (!rpi_stream_dials_again(&redials, &link->socket, deadline_ns)) return status;
        rpi_shm_enter(link, RPI_SHM_NEW);
    }
}

static rp_status connect_to(rpi_shm_endpoint *endpoint, rpi_shm_link *link, const char *address,
                            int64_t deadline_ns) {
    int peer = link->base.peer;
    rpi_channel channel;
    if (peer < endpoint->base.rank) return connect_lower(endpoint, link, address, deadline_ns);
    RP_TRY(rpi_acceptor_wait(&endpoint->acceptor, peer, 0, deadline_ns, &channel));
    link->socket = channel.fd;
    return offer(endpoint, link, deadline_ns);
}

void rpi_shm_link_close(rpi_shm_link *link) {
    if (!link) return;
    if (link->socket >= 0) close(link->socket);
    if (link->peer_event >= 0) close(link->peer_event);
    if (link->memory) munmap(link->memory, link->memory_bytes);
    if (link->peer_doorbell)
        munmap(link->peer_doorbell, rpi_doorbell_bytes(link->base.endpoint->world));
    rpi_shm_buffers_close(&link->buffers);
    rpi_free(link);
}

rp_status rpi_shm_watch(rpi_shm_endpoint *endpoint, int fd, rpi_shm_link *link) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = link};
    if (epoll_ctl(endpoint->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        return RP_FAIL_ERRNO(IO, "cannot watch a descriptor");
    return RP_OK;
}

static rp_status new_link(rpi_shm_endpoint *endpoint, int peer, rpi_shm_link **out_link) {
    RP_TRY(rpi_peer_check(&endpoint->base, peer));
    if (endpoint->links[peer]) return RP_FAIL(STATE, "rank %d is connected already", peer);
    rpi_shm_link *link = NULL;
    RP_TRY(rpi_alloc(sizeof *link, "a link", &link));
    link->base = (rpi_link){.endpoint = &endpoint->base, .peer = peer};
    link->socket = link->peer_event = -1;
    link->memory_bytes = rpi_ring_pair_bytes(endpoint->hello.frame_bytes);
    *out_link = link;
    return RP_OK;
}

static rp_status cannot_connect(rp_status status, int peer, const char *address) {
    return rpi_fail_context(status, "connecting to rank %d at %s: ", peer, address);
}

static rp_status call_one(rpi_shm_endpoint *endpoint, int peer, const char *address,
                          int64_t deadline_ns) {
    rpi_shm_link *link = NULL;
    RP_TRY(new_link(endpoint, peer, &link));
    rp_status status = call(endpoint, link, address, deadline_ns);
    if (status == RP_OK)
        endpoint->called[peer] = link;
    else
        rpi_shm_link_close(link);
    return status;
}

/* connect() calls a peer again that closed. */
static rp_status send_hello_to(rpi_shm_endpoint *endpoint, int peer, int64_t deadline_ns) {
    rpi_shm_link *link = endpoint->called[peer];
    rp_status status = send_hello(endpoint, link, deadline_ns);
    if (status == RP_OK) return status;
    endpoint->called[peer] = NULL;
    rpi_shm_link_close(link);
    return status == RP_PEER ? RP_OK : status;
}

rp_status rpi_shm_dial(rpi_endpoint *base, const int *peers, const char *const *addresses,
                       int count, int64_t deadline_ns, int *out_failed) {
    rpi_shm_endpoint *endpoint = (rpi_shm_endpoint *)base;
    rp_status status = RP_OK;
    int i;
    for (i = 0; i < count && status == RP_OK; i++)
        status = call_one(endpoint, peers[i], addresses[i], deadline_ns);
    bool called = status == RP_OK;
    for (i = called ? 0 : i; i < count && status == RP_OK; i++)
        status = send_hello_to(endpoint, peers[i], deadline_ns);
    if (status == RP_OK) return status;
    *out_failed = peers[i - 1];
    return cannot_connect(status, peers[i - 1], addresses[i - 1]);
}

/* The call that was begun before, or a new one. */
static rp_status take_link(rpi_shm_endpoint *endpoint, int peer, rpi_shm_link **out_link) {
    RP_TRY(rpi_peer_check(&endpoint->base, peer));
    *out_link = endpoint->called[peer];
    endpoint->called[peer] = NULL;
    return *out_link ? RP_OK : new_link(endpoint, peer, out_link);
}

/* The link has its socket, its memory and the descriptors that wake the peer. */
static rp_status join(rpi_shm_endpoint *endpoint, rpi_shm_link *link) {
    int rank = endpoint->base.rank, peer = link->base.peer;
    RP_TRY(rpi_shm_watch(endpoint, link->socket, link));
    rpi_ring_pair_join(&link->pair, link->memory, rank > peer, endpoint->hello.frame_bytes,
                       link->peer_event);
    if (endpoint->zero_copy) rpi_ring_pair_take_places(&link->pair);
    endpoint->links[peer] = link;
    rpi_shm_enter(link, RPI_SHM_UP);
    if (link->peer_doorbell) {
        rpi_ring_pair_ring_at(&link->pair, link->peer_doorbell, rank);
        rpi_doorbell_admit(&endpoint->doorbell, peer);
    }
    return RP_OK;
}

rp_status rpi_shm_connect(rpi_endpoint *base, int peer, const char *address,
                          int64_t deadline_ns, rpi_link **out_link) {
    rpi_shm_endpoint *endpoint = (rpi_shm_endpoint *)base;
    rpi_shm_link *link = NULL;
    RP_TRY(take_link(endpoint, peer, &link));
    rp_status status = connect_to(endpoint, link, address, deadline_ns);
    if (status == RP_OK) status = join(endpoint, link);
    if (status != RP_OK) {
        rpi_shm_link_close(link);
        return cannot_connect(status, peer, address);
    }
    *out_link = &link->base;
    return RP_OK;
}

/* ---- links that come on need: the caller passes what wakes it, the other side the memory,
 * too. Of a call's descriptors the first is the memory. ---- */

static rp_status begin_dial(const char *address, unsigned attempt, int *out_fd, int *out_ways) {
    (void)attempt;
    *out_ways = 1;
    if (strncmp(address, "shm:", 4) != 0)
        return RP_FAIL(INVALID, "that is no address of a shm endpoint");
    RP_TRY(rpi_unix_dial(address + 4, 0, out_fd));
    return rpi_check_same_user(*out_fd);
}

static rp_status pass_fds(void *context, rpi_call *call) {
    const rpi_shm_endpoint *endpoint = context;
    int fds[3] = {-1}, count = own_fds(endpoint, fds + 1);
    if (call->is_caller) return rpi_fds_send(call->channel.fd, fds + 1, count, 0);
    RP_TRY(rpi_sealed_make(rpi_ring_pair_bytes(endpoint->hello.frame_bytes), &call->fds[0]));
    fds[0] = call->fds[0];
    return rpi_fds_send(call->channel.fd, fds, 1 + count, 0);
}

static rp_status receive_fds(void *context, rpi_call *call) {
    const rpi_shm_endpoint *endpoint = context;
    int own[2], first = call->is_caller ? 0 : 1, count = 1 - first + own_fds(endpoint, own);
    rp_status status = rpi_fds_receive(call->channel.fd, call->fds + first, count, 0);
    return status == RP_TIMEOUT ? RP_PENDING : status;
}

const rpi_call_kind rpi_shm_connecting = {
    .dial = begin_dial, .send = pass_fds, .receive = receive_fds};

rp_status rpi_shm_call(rpi_endpoint *base, int peer, const char *address) {
    RP_TRY(rpi_peer_check(base, peer));
    return rpi_connector_request(((rpi_shm_endpoint *)base)->connector, peer, address);
}

static int take_fd(int *fd) {
    int taken = *fd;
    *fd = -1;
    return taken;
}

static rp_status link_of_call(rpi_shm_endpoint *endpoint, rpi_call *call,
                              rpi_shm_link **out_link) {
    RP_TRY(new_link(endpoint, call->peer, out_link));
    rpi_shm_link *link = *out_link;
    link->socket = take_fd(&call->channel.fd);
    int wakers[2] = {take_fd(&call->fds[1]), take_fd(&call->fds[2])};
    RP_TRY(take_fds(endpoint, link, wakers));
    RP_TRY(map_sealed(call->fds[0], link->memory_bytes, &link->memory));
    return join(endpoint, link);
}

rp_status rpi_shm_connected(rpi_endpoint *base, int *out_peer, rpi_link **out_link) {
    rpi_shm_endpoint *endpoint = (rpi_shm_endpoint *)base;
    rpi_call *call = rpi_connector_connected(endpoint->connector);
    rpi_shm_link *link = NULL;
    if (!call) return RP_PENDING;
    *out_peer = call->peer;
    rp_status status = call->status;
    if (status != RP_OK)
        status = rpi_fail(status, __FILE__, __LINE__, "%s", call->text);
    else
        status = link_of_call(endpoint, call, &link);
    if (status != RP_OK)
        rpi_shm_link_close(link);
    else
        *out_link = &link->base;
    rpi_call_free(call);
    return status;
}
