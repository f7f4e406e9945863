/* Ranks are processes of one machine: frames pass through shared memory.
 *
 * The lower rank of a pair makes an anonymous memory file and passes it over a Unix socket of
 * the abstract namespace, both pass the event descriptor on which they sleep. None of these has
 * a name in a file system: when the processes are gone, however they went, so is all of it. The
 * sockets stay open, because their end tells at once that the process behind has ended. */
#include "net/link/transport_kinds.h"

#include "base/clock.h"
#include "base/event.h"
#include "base/memory.h"
#include "net/bytes/close_after_fork.h"
#include "net/bytes/frame.h"
#include "net/link/endpoint.h"
#include "net/memory/buffers.h"
#include "net/shm/shm_endpoint.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    EVENTS = 64,
    LOOK_EVERY = 256, /* passes between looks at the sockets by a caller that never sleeps */
    PLACE_FRAME_BYTES = RPI_FRAME_HEADER_BYTES + sizeof(rpi_shm_place),
};

/* Abstract sockets belong to a network namespace, memory to a kernel. */
static bool shm_reaches(const rpi_peer_info *self, const rpi_peer_info *peer) {
    return strcmp(self->host, peer->host) == 0;
}

static bool is_gone(const rpi_shm_link *link) {
    return link->stage == RPI_SHM_GONE;
}

/* --- endpoint --- */

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

/* Behind all else: callers come from here on. */
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
    endpoint->hello.secret.tls = false; /* nothing of this leaves the kernel */
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

/* ---- which links have news ---- */

/* Something has come of a link that its peer does not ring for: its end, or that we wait for
 * room or a payload. */
static void note(rpi_shm_endpoint *endpoint, const rpi_shm_link *link) {
    if (endpoint->doorbell.page) rpi_doorbell_note(&endpoint->doorbell, link->base.peer);
}

static const rpi_rank_set *shm_news(rpi_endpoint *base) {
    rpi_shm_endpoint *endpoint = (rpi_shm_endpoint *)base;
    if (!endpoint->doorbell.page) return NULL;
    rpi_doorbell_take(&endpoint->doorbell);
    return &endpoint->doorbell.links;
}

/* A peer that may not speak of buffers says nothing after it has connected: this is its end. */
static void hear(rpi_shm_endpoint *endpoint, rpi_shm_link *link) {
    rp_status status =
        endpoint->zero_copy ? rpi_shm_buffers_hear(&link->buffers, link->socket) : RP_PEER;
    rpi_ring_pair_note(&link->pair, link->buffers.said); /* it answers offers */
    if (status == RP_OK || status == RP_PENDING) return;
    if (status == RP_CORRUPT) rpi_sticky_error_keep(&link->sticky, status);
    if (link->stage == RPI_SHM_UP) rpi_shm_enter(link, RPI_SHM_GONE);
    note(endpoint, link);
    epoll_ctl(endpoint->epoll_fd, EPOLL_CTL_DEL, link->socket, NULL);
}

/* Who does not sleep looks at sockets rarely: the peer says in the link that it has said
 * something there. */
static void hear_notes(rpi_shm_link *link) {
    rpi_shm_endpoint *endpoint = (rpi_shm_endpoint *)link->base.endpoint;
    if (endpoint->zero_copy && link->stage == RPI_SHM_UP &&
        rpi_ring_pair_has_notes(&link->pair))
        hear(endpoint, link);
}

/* Has a process ended, or said something? Was our event descriptor written? One system call. */
static rp_status look(rpi_shm_endpoint *endpoint) {
    struct epoll_event events[EVENTS];
    int count = epoll_wait(endpoint->epoll_fd, events, EVENTS, 0);
    if (count < 0 && errno != EINTR) return RP_FAIL_ERRNO(IO, "cannot watch descriptors");
    for (int i = 0; i < count; i++) {
        rpi_shm_link *link = events[i].data.ptr;
        if (!link) {
            rpi_event_clear(endpoint->event);
        } else {
            hear(endpoint, link);
        }
    }
    return RP_OK;
}

/* Who frees and allocates again has room at its peers as soon as they have heard of it. */
static void drop_freed(rpi_shm_endpoint *endpoint) {
    unsigned freed = rpi_buffers_freed();
    bool told = true;
    if (!endpoint->zero_copy || freed == endpoint->freed) return;
    for (int peer = 0; peer < endpoint->base.world; peer++) {
        rpi_shm_link *link = endpoint->links[peer];
        if (!link || is_gone(link)) continue;
        told &= rpi_shm_buffers_drop_freed(&link->buffers, link->socket);
        rpi_ring_pair_note(&link->pair, link->buffers.said);
    }
    if (told) endpoint->freed = freed;
}

static rp_status shm_progress(rpi_endpoint *base) {
    rpi_shm_endpoint *endpoint = (rpi_shm_endpoint *)base;
    drop_freed(endpoint);
    return ++endpoint->passes % LOOK_EVERY ? RP_OK : look(endpoint);
}

static bool arm_link(rpi_shm_link *link) {
    if (rpi_ring_pair_arm(&link->pair)) return true;
    bool asks = link->pair.held.bytes == 0 || rpi_ring_pair_is_starved(&link->pair);
    return asks && is_gone(link) && !link->sticky.told;
}

static bool arm_all(const rpi_shm_endpoint *endpoint) {
    for (int peer = 0; peer < endpoint->base.world; peer++)
        if (endpoint->links[peer] && arm_link(endpoint->links[peer])) return true;
    return false;
}

/* Those that may have news, and those that this side waits for with more than an ear for
 * frames; the others ring. */
static bool arm_noted(rpi_shm_endpoint *endpoint) {
    rpi_doorbell *doorbell = &endpoint->doorbell;
    rpi_doorbell_arm(doorbell);
    for (int peer = rpi_rank_set_next(&doorbell->links, 0); peer >= 0;
         peer = rpi_rank_set_next(&doorbell->links, peer + 1)) {
        rpi_shm_link *link = endpoint->links[peer];
        if (arm_link(link)) return true;
        bool ends =
            is_gone(link) && link->sticky.status == RP_OK; /* peek() has still to say so */
        if (!ends && !rpi_ring_pair_asks(&link->pair))
            rpi_rank_set_remove(&doorbell->links, peer);
    }
    return false;
}

static bool shm_arm(rpi_endpoint *base, int *out_fd, int64_t *wake_at_ns) {
    rpi_shm_endpoint *endpoint = (rpi_shm_endpoint *)base;
    *out_fd = endpoint->epoll_fd;
    *wake_at_ns = RPI_NEVER_NS;
    endpoint->armed = true;
    return endpoint->doorbell.page ? arm_noted(endpoint) : arm_all(endpoint);
}

static void disarm_noted(rpi_shm_endpoint *endpoint) {
    rpi_doorbell *doorbell = &endpoint->doorbell;
    rpi_doorbell_disarm(doorbell);
    for (int peer = rpi_rank_set_next(&doorbell->links, 0); peer >= 0;
         peer = rpi_rank_set_next(&doorbell->links, peer + 1))
        rpi_ring_pair_disarm(&endpoint->links[peer]->pair);
}

static void shm_disarm(rpi_endpoint *base) {
    rpi_shm_endpoint *endpoint = (rpi_shm_endpoint *)base;
    if (endpoint->doorbell.page) disarm_noted(endpoint);
    for (int peer = 0; !endpoint->doorbell.page && peer < base->world; peer++)
        if (endpoint->links[peer]) rpi_ring_pair_disarm(&endpoint->links[peer]->pair);
    if (endpoint->armed) look(endpoint);
    endpoint->armed = false;
}

static rp_status shm_flushed(rpi_endpoint *base) {
    (void)base; /* the memory keeps what was committed until the peer has read it */
    return RP_OK;
}

/* --- links --- */

static rp_status gone(rpi_shm_link *link) {
    link->sticky.told = true; /* but frames that came before are still to be read */
    return RP_FAIL(PEER,
                   "connection closed by peer: rank %d closed its end or its process ended",
                   link->base.peer);
}

static rp_status shm_reserve(rpi_link *base, size_t bytes, void **out_region) {
    rpi_shm_link *link = (rpi_shm_link *)base;
    RP_TRY(rpi_sticky_error_raise(&link->sticky));
    if (is_gone(link)) return gone(link);
    rp_status status = base->traffic == RPI_TRAFFIC_BULK
                           ? rpi_ring_pair_reserve_bulk(&link->pair, bytes, out_region)
                           : rpi_ring_pair_reserve(&link->pair, bytes, out_region);
    if (status == RP_PENDING || status == RP_CORRUPT)
        note((rpi_shm_endpoint *)base->endpoint, link);
    return status == RP_CORRUPT ? rpi_sticky_error_keep(&link->sticky, status) : status;
}

static rp_status shm_commit(rpi_link *base, size_t bytes) {
    rpi_shm_link *link = (rpi_shm_link *)base;
    RP_TRY(rpi_ring_pair_commit(&link->pair, bytes));
    rpi_link_count_sent(base, bytes);
    return RP_OK;
}

static void shm_release(rpi_link *base) {
    rpi_shm_link *link = (rpi_shm_link *)base;
    rpi_link_count_received(base, link->lies != RPI_SHM_LIES_BEHIND
                                      ? RPI_FRAME_HEADER_BYTES + link->payload_bytes
                                      : link->pair.held.bytes);
    rpi_ring_pair_release(&link->pair);
    link->lies = RPI_SHM_LIES_BEHIND;
    link->payload = NULL;
    rpi_shm_buffers_release(&link->buffers);
    note((rpi_shm_endpoint *)base->endpoint, link); /* for the frame behind it */
}

/* RP_PENDING: it lies in a buffer that is not mapped here. */
static rp_status find_payload(rpi_shm_link *link, const void *frame, size_t bytes) {
    rpi_shm_place place;
    if (bytes != PLACE_FRAME_BYTES) return RP_FAIL(CORRUPT, "a place in %zu bytes", bytes);
    memcpy(&place, (const char *)frame + RPI_FRAME_HEADER_BYTES, sizeof place);
    if (place.bytes == 0 || place.bytes > link->pair.frame_bytes - RPI_FRAME_HEADER_BYTES)
        return RP_FAIL(CORRUPT, "a payload of %u bytes", place.bytes);
    if (!(place.flags & RPI_SHM_WRITTEN))
        RP_TRY(rpi_shm_buffers_hold(&link->buffers, &place, &link->payload));
    link->payload_bytes = place.bytes;
    if (place.flags & RPI_SHM_WRITTEN)
        link->lies = RPI_SHM_LIES_HERE;
    else
        link->lies =
            place.flags & RPI_SHM_WRITABLE ? RPI_SHM_LIES_WRITABLE : RPI_SHM_LIES_THERE;
    return RP_OK;
}

/* RP_PENDING: the frame was withdrawn, and is left out. */
static rp_status peek_place(rpi_shm_link *link, const void *frame, size_t *in_out_bytes) {
    rp_status status = RP_OK;
    if (link->lies == RPI_SHM_LIES_BEHIND) { /* it has not been looked for */
        status = find_payload(link, frame, *in_out_bytes);
        if (!rpi_ring_pair_is_valid(&link->pair)) { /* its buffer may be gone, too */
            shm_release(&link->base);
            return RP_PENDING;
        }
    }
    if (status == RP_PENDING)
        return RP_FAIL(CORRUPT, "rank %d named a buffer that it has not passed",
                       link->base.peer);
    *in_out_bytes = RPI_FRAME_HEADER_BYTES + link->payload_bytes;
    return status;
}

static rp_status next_frame(rpi_shm_link *link, const void **out_frame, size_t *out_bytes) {
    for (;;) {
        RP_TRY(rpi_ring_pair_peek(&link->pair, out_frame, out_bytes));
        if (!link->pair.held_place) return RP_OK;
        rp_status status = peek_place(link, *out_frame, out_bytes);
        if (status != RP_PENDING) return status;
    }
}

/* What comes from here on rings. */
static void forget_news(const rpi_shm_link *link) {
    const rpi_shm_endpoint *endpoint = (const rpi_shm_endpoint *)link->base.endpoint;
    bool rings = endpoint->doorbell.page && !rpi_ring_pair_asks(&link->pair);
    if (rings) rpi_rank_set_remove(&endpoint->doorbell.links, link->base.peer);
}

static rp_status shm_peek(rpi_link *base, const void **out_frame, size_t *out_bytes) {
    rpi_shm_link *link = (rpi_shm_link *)base;
    hear_notes(link);
    RP_TRY(rpi_sticky_error_raise(&link->sticky));
    rp_status status = next_frame(link, out_frame, out_bytes);
    if (status == RP_OK) return status;
    if (status == RP_PENDING && link->stage == RPI_SHM_UP) {
        forget_news(link);
        return status;
    }
    /* All that a process wrote before its end is visible once the end is. */
    if (status == RP_PENDING) status = gone(link);
    rpi_sticky_error_keep(&link->sticky, status);
    return rpi_sticky_error_raise(&link->sticky);
}

/* --- payloads that stay where they are --- */

static bool shm_reaches_payload(rpi_link *base, const void *payload, size_t bytes) {
    rpi_shm_link *link = (rpi_shm_link *)base;
    const rpi_shm_endpoint *endpoint = (const rpi_shm_endpoint *)base->endpoint;
    if (!endpoint->zero_copy || is_gone(link) || !rpi_ring_pair_may_name_places(&link->pair))
        return false;
    bool reached =
        rpi_shm_buffers_reach(&link->buffers, link->socket, payload, bytes, &link->to);
    rpi_ring_pair_note(&link->pair, link->buffers.said);
    return reached;
}

/* As it was reserved: a header, and room for the place. number NULL: nothing of ours is in use.
 */
static rp_status post_to(rpi_shm_link *link, size_t bytes, uint32_t *out_number) {
    void *region = NULL;
    uint32_t number = 0;
    RP_TRY(shm_reserve(&link->base, PLACE_FRAME_BYTES, &region));
    memcpy((char *)region + RPI_FRAME_HEADER_BYTES, &link->to, sizeof link->to);
    RP_TRY(rpi_ring_pair_commit_place(&link->pair, PLACE_FRAME_BYTES, &number));
    note((rpi_shm_endpoint *)link->base.endpoint, link); /* for its return */
    rpi_link_count_sent(&link->base, RPI_FRAME_HEADER_BYTES + bytes);
    if (out_number) *out_number = number;
    return RP_OK;
}

static rp_status shm_commit_place(rpi_link *base, const void *payload, size_t bytes,
                                  bool writable, uint32_t *out_number) {
    rpi_shm_link *link = (rpi_shm_link *)base;
    if (!shm_reaches_payload(base, payload, bytes))
        return RP_FAIL(STATE, "rank %d does not see this payload", base->peer);
    if (writable) link->to.flags = RPI_SHM_WRITABLE;
    return post_to(link, bytes, out_number);
}

static rp_status shm_commit_written(rpi_link *base, size_t bytes) {
    rpi_shm_link *link = (rpi_shm_link *)base;
    link->to = (rpi_shm_place){.bytes = (uint32_t)bytes, .flags = RPI_SHM_WRITTEN};
    return post_to(link, bytes, NULL);
}

static bool shm_is_completed(rpi_link *base, uint32_t number) {
    rpi_shm_link *link = (rpi_shm_link *)base;
    rp_status status = rpi_ring_pair_is_completed(&link->pair, number);
    if (status == RP_CORRUPT) {
        note((rpi_shm_endpoint *)base->endpoint, link);
        rpi_sticky_error_keep(&link->sticky, status);
    }
    return status == RP_OK;
}

/* The dead do not write. */
static bool shm_revoke(rpi_link *base, uint32_t number) {
    rpi_shm_link *link = (rpi_shm_link *)base;
    if (rpi_ring_pair_revoke(&link->pair, number) == RP_OK) return true;
    hear((rpi_shm_endpoint *)base->endpoint, link);
    return is_gone(link) || !rpi_ring_pair_is_writing_to(&link->pair, number);
}

static bool shm_is_written(rpi_link *base) {
    const rpi_shm_link *link = (const rpi_shm_link *)base;
    return link->lies == RPI_SHM_LIES_HERE;
}

static void *shm_begin_write(rpi_link *base) {
    rpi_shm_link *link = (rpi_shm_link *)base;
    if (link->lies != RPI_SHM_LIES_WRITABLE) return NULL;
    return rpi_ring_pair_begin_write(&link->pair) ? link->payload : NULL;
}

static void shm_end_write(rpi_link *base) {
    rpi_ring_pair_end_write(&((rpi_shm_link *)base)->pair);
}

static const void *shm_payload(rpi_link *base) {
    return ((rpi_shm_link *)base)->payload;
}

static bool shm_is_valid(rpi_link *base) {
    const rpi_shm_link *link = (const rpi_shm_link *)base;
    return !link->payload || rpi_ring_pair_is_valid(&link->pair);
}

static const rpi_zero_copy zero_copy = {
    .reaches = shm_reaches_payload,
    .frame_bytes = PLACE_FRAME_BYTES,
    .commit = shm_commit_place,
    .commit_written = shm_commit_written,
    .is_completed = shm_is_completed,
    .revoke = shm_revoke,
    .payload = shm_payload,
    .is_written = shm_is_written,
    .begin_write = shm_begin_write,
    .end_write = shm_end_write,
    .is_valid = shm_is_valid,
};

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
    .reserve = shm_reserve,
    .commit = shm_commit,
    .peek = shm_peek,
    .release = shm_release,
    .news = shm_news,
    .progress = shm_progress,
    .arm = shm_arm,
    .disarm = shm_disarm,
    .flushed = shm_flushed,
    .close = shm_close,
    .close_after_fork = shm_close_after_fork,
    .zero_copy = &zero_copy,
};
