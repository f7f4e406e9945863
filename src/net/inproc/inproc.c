/* Ranks are threads of one process: frames pass through memory on the heap.
 *
 * Endpoints find each other in a list of this process by the number in their address. The side
 * that connects first makes the pipe and leaves it at the other's endpoint. A pipe and a waker
 * live as long as either side holds them, so that one side may close while the other still
 * reads. */
#include "net/link/transport_kinds.h"

#include "base/clock.h"
#include "base/event.h"
#include "base/memory.h"
#include "net/bytes/close_after_fork.h"
#include "net/bytes/sticky_error.h"
#include "net/link/endpoint.h"
#include "net/memory/ring_pair.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct inproc_waker {
    atomic_int holders;
    int fd;
} inproc_waker;

typedef struct inproc_pipe {
    atomic_int holders;
    atomic_bool closed[2]; /* by side */
    inproc_waker *wakers[2];
    void *memory;
    size_t memory_bytes;
} inproc_pipe;

typedef struct inproc_link {
    rpi_link base;
    rpi_ring_pair pair;
    inproc_pipe *pipe;
    int side; /* 0: the lower rank's */
    rpi_sticky_error sticky;
} inproc_link;

typedef struct inproc_endpoint {
    rpi_endpoint base;
    struct inproc_endpoint *next; /* [registry_lock] */
    uint64_t number, session;
    size_t frame_bytes;
    inproc_waker *waker;
    inproc_link **links;  /* [world] */
    inproc_pipe **offers; /* [world] pipes made by peers that connected first [registry_lock] */
    bool on_need;
    atomic_bool offered;    /* peers have left some since connected() last looked */
    rpi_rank_set connected; /* made by call(), or from offers, and not returned yet */
} inproc_endpoint;

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static inproc_endpoint *registry; /* open endpoints of this process */
static uint64_t registry_count;   /* opened so far */

static bool inproc_reaches(const rpi_peer_info *self, const rpi_peer_info *peer) {
    return self->process == peer->process && self->pid == peer->pid &&
           strcmp(self->machine, peer->machine) == 0;
}

static rp_status waker_create(inproc_waker **out_waker) {
    inproc_waker *waker = NULL;
    RP_TRY(rpi_alloc(sizeof *waker, "a waker", &waker));
    rp_status status = rpi_event_open(&waker->fd);
    if (status != RP_OK) {
        rpi_free(waker);
        return status;
    }
    atomic_init(&waker->holders, 1);
    *out_waker = waker;
    return RP_OK;
}

static void waker_drop(inproc_waker *waker) {
    if (!waker || atomic_fetch_sub(&waker->holders, 1) > 1) return;
    close(waker->fd);
    rpi_free(waker);
}

static rp_status pipe_create(const inproc_endpoint *low, const inproc_endpoint *high,
                             inproc_pipe **out_pipe) {
    inproc_pipe *pipe = NULL;
    RP_TRY(rpi_alloc(sizeof *pipe, "a pipe", &pipe));
    pipe->memory_bytes = rpi_ring_pair_bytes(low->frame_bytes);
    rp_status status = rpi_alloc_pages(pipe->memory_bytes, "frames in flight between two ranks",
                                       &pipe->memory);
    if (status != RP_OK) {
        rpi_free(pipe);
        return status;
    }
    atomic_init(&pipe->holders, 2);
    inproc_waker *wakers[2] = {low->waker, high->waker};
    for (int side = 0; side < 2; side++) {
        pipe->wakers[side] = wakers[side];
        atomic_fetch_add(&wakers[side]->holders, 1);
    }
    *out_pipe = pipe;
    return RP_OK;
}

/* One side is done with it. */
static void pipe_drop(inproc_pipe *pipe) {
    if (!pipe || atomic_fetch_sub(&pipe->holders, 1) > 1) return;
    waker_drop(pipe->wakers[0]);
    waker_drop(pipe->wakers[1]);
    rpi_free_pages(pipe->memory, pipe->memory_bytes);
    rpi_free(pipe);
}

static void pipe_close(inproc_pipe *pipe, int side) {
    if (!pipe) return;
    atomic_store(&pipe->closed[side], true);
    rpi_event_set(pipe->wakers[!side]->fd);
    pipe_drop(pipe);
}

static void enlist(inproc_endpoint *endpoint) {
    pthread_mutex_lock(&registry_lock);
    endpoint->number = ++registry_count;
    endpoint->next = registry;
    registry = endpoint;
    pthread_mutex_unlock(&registry_lock);
}

static void delist(inproc_endpoint *endpoint) {
    pthread_mutex_lock(&registry_lock);
    inproc_endpoint **at = &registry;
    while (*at && *at != endpoint) at = &(*at)->next;
    if (*at) *at = endpoint->next;
    pthread_mutex_unlock(&registry_lock);
}

static void inproc_close(rpi_endpoint *base) {
    inproc_endpoint *endpoint = (inproc_endpoint *)base;
    if (!endpoint) return;
    delist(endpoint); /* from now on no peer leaves an offer */
    for (int peer = 0; peer < base->world; peer++) {
        int side = base->rank > peer;
        if (endpoint->offers) pipe_close(endpoint->offers[peer], side);
        if (endpoint->links && endpoint->links[peer]) {
            pipe_close(endpoint->links[peer]->pipe, side);
            rpi_free(endpoint->links[peer]);
        }
    }
    waker_drop(endpoint->waker);
    rpi_rank_set_free(&endpoint->connected);
    rpi_free(endpoint->links);
    rpi_free(endpoint->offers);
    rpi_free(endpoint);
}

/* The peers' wakers are closed with the endpoints to which they belong. */
static void inproc_close_after_fork(rpi_endpoint *base) {
    rpi_fd_close_after_fork(&((inproc_endpoint *)base)->waker->fd);
}

static rp_status inproc_fill(inproc_endpoint *endpoint) {
    size_t world = (size_t)endpoint->base.world;
    RP_TRY(rpi_alloc_array(world, sizeof *endpoint->links, "links", &endpoint->links));
    RP_TRY(rpi_alloc_array(world, sizeof *endpoint->offers, "links", &endpoint->offers));
    RP_TRY(rpi_rank_set_make(endpoint->base.world, &endpoint->connected));
    return waker_create(&endpoint->waker);
}

static rp_status inproc_open(const rpi_endpoint_options *options, rpi_endpoint **out_endpoint) {
    inproc_endpoint *endpoint = NULL;
    RP_TRY(rpi_endpoint_check(options));
    RP_TRY(rpi_alloc(sizeof *endpoint, "an endpoint", &endpoint));
    endpoint->base = (rpi_endpoint){
        .transport = &rpi_transport_inproc, .rank = options->rank, .world = options->world};
    endpoint->session = options->session;
    endpoint->frame_bytes = options->frame_bytes;
    endpoint->on_need = options->on_need;
    rp_status status = inproc_fill(endpoint);
    if (status != RP_OK) {
        inproc_close(&endpoint->base);
        return status;
    }
    enlist(endpoint);
    *out_endpoint = &endpoint->base;
    return RP_OK;
}

static rp_status inproc_address(rpi_endpoint *base, char *text, size_t bytes) {
    inproc_endpoint *endpoint = (inproc_endpoint *)base;
    int length = snprintf(text, bytes, "inproc:%" PRIu64, endpoint->number);
    if (length < 0 || (size_t)length >= bytes)
        return RP_FAIL(INVALID, "an address needs %d bytes, not %zu", length + 1, bytes);
    return RP_OK;
}

/* [registry_lock] */
static rp_status find(const inproc_endpoint *self, int peer, const char *address,
                      inproc_endpoint **out_other) {
    uint64_t number = 0;
    if (sscanf(address, "inproc:%" SCNu64, &number) != 1)
        return RP_FAIL(INVALID, "'%s' is no address of an inproc endpoint", address);
    inproc_endpoint *other = registry;
    while (other && other->number != number) other = other->next;
    if (!other)
        return RP_FAIL(PEER, "connection closed by peer: rank %d has closed its endpoint %s",
                       peer, address);
    if (other->session != self->session || other->base.world != self->base.world ||
        other->base.rank != peer || other->frame_bytes != self->frame_bytes)
        return RP_FAIL(MISMATCH,
                       "%s is rank %d of %d in another job, not rank %d of %d in this one",
                       address, other->base.rank, other->base.world, peer, self->base.world);
    *out_other = other;
    return RP_OK;
}

/* The pipe to a peer: the one that it left here, or a new one that is left at its endpoint.
 * [registry_lock] */
static rp_status join_pipe(inproc_endpoint *self, int peer, const char *address,
                           inproc_pipe **out_pipe) {
    if (self->offers[peer]) {
        *out_pipe = self->offers[peer];
        self->offers[peer] = NULL;
        return RP_OK;
    }
    inproc_endpoint *other = NULL;
    RP_TRY(find(self, peer, address, &other));
    bool lower = self->base.rank < peer;
    RP_TRY(pipe_create(lower ? self : other, lower ? other : self, out_pipe));
    other->offers[self->base.rank] = *out_pipe;
    if (!other->on_need) return RP_OK; /* it comes for it by itself */
    atomic_store(&other->offered, true);
    rpi_event_set(other->waker->fd);
    return RP_OK;
}

static rp_status inproc_connect(rpi_endpoint *base, int peer, const char *address,
                                int64_t deadline_ns, rpi_link **out_link) {
    inproc_endpoint *endpoint = (inproc_endpoint *)base;
    (void)deadline_ns; /* no wait is needed: the pipe holds frames until the peer connects */
    RP_TRY(rpi_peer_check(base, peer));
    if (endpoint->links[peer]) return RP_FAIL(STATE, "rank %d is connected already", peer);
    inproc_link *link = NULL;
    RP_TRY(rpi_alloc(sizeof *link, "a link", &link));
    pthread_mutex_lock(&registry_lock);
    rp_status status = join_pipe(endpoint, peer, address, &link->pipe);
    pthread_mutex_unlock(&registry_lock);
    if (status != RP_OK) {
        rpi_free(link);
        return status;
    }
    link->base = (rpi_link){.endpoint = base, .peer = peer};
    link->side = base->rank > peer;
    rpi_ring_pair_join(&link->pair, link->pipe->memory, link->side, endpoint->frame_bytes,
                       link->pipe->wakers[!link->side]->fd);
    endpoint->links[peer] = link;
    *out_link = &link->base;
    return RP_OK;
}

static rp_status inproc_call(rpi_endpoint *base, int peer, const char *address) {
    inproc_endpoint *endpoint = (inproc_endpoint *)base;
    rpi_link *link = NULL;
    RP_TRY(rpi_peer_check(base, peer));
    if (endpoint->links[peer]) return RP_OK;
    RP_TRY(inproc_connect(base, peer, address, 0, &link));
    rpi_rank_set_put(&endpoint->connected, peer);
    rpi_event_set(endpoint->waker->fd);
    return RP_OK;
}

static bool has_offer(inproc_endpoint *endpoint, int peer) {
    pthread_mutex_lock(&registry_lock);
    bool has = endpoint->offers[peer] != NULL;
    pthread_mutex_unlock(&registry_lock);
    return has;
}

/* One that cannot be taken is of no use later: its maker is told that this end is closed. */
static void drop_offer(inproc_endpoint *endpoint, int peer) {
    pthread_mutex_lock(&registry_lock);
    inproc_pipe *pipe = endpoint->offers[peer];
    endpoint->offers[peer] = NULL;
    pthread_mutex_unlock(&registry_lock);
    pipe_close(pipe, endpoint->base.rank > peer);
}

static rp_status inproc_connected(rpi_endpoint *base, int *out_peer, rpi_link **out_link) {
    inproc_endpoint *endpoint = (inproc_endpoint *)base;
    bool offered =
        atomic_load(&endpoint->offered) && atomic_exchange(&endpoint->offered, false);
    for (*out_peer = 0; offered && *out_peer < base->world; ++*out_peer) {
        rpi_link *link = NULL;
        if (!has_offer(endpoint, *out_peer)) continue;
        rp_status status = inproc_connect(base, *out_peer, "", 0, &link);
        if (status != RP_OK) {
            drop_offer(endpoint, *out_peer);
            atomic_store(&endpoint->offered, true); /* there may be others */
            return status;
        }
        rpi_rank_set_put(&endpoint->connected, *out_peer);
    }
    *out_peer = rpi_rank_set_next(&endpoint->connected, 0);
    if (*out_peer < 0) return RP_PENDING;
    rpi_rank_set_remove(&endpoint->connected, *out_peer);
    *out_link = &endpoint->links[*out_peer]->base;
    return RP_OK;
}

static bool peer_closed(inproc_link *link) {
    return atomic_load(&link->pipe->closed[!link->side]);
}

static rp_status gone(inproc_link *link) {
    return rpi_sticky_error_keep(
        &link->sticky,
        RP_FAIL(PEER, "connection closed by peer: rank %d closed its end of the link",
                link->base.peer));
}

static rp_status inproc_reserve(rpi_link *base, size_t bytes, void **out_region) {
    inproc_link *link = (inproc_link *)base;
    RP_TRY(rpi_sticky_error_raise(&link->sticky));
    if (peer_closed(link)) {
        link->sticky.told = true; /* but frames that arrived before are still to be read */
        return RP_FAIL(PEER, "connection closed by peer: rank %d closed its end of the link",
                       base->peer);
    }
    if (base->traffic == RPI_TRAFFIC_BULK)
        return rpi_ring_pair_reserve_bulk(&link->pair, bytes, out_region);
    return rpi_ring_pair_reserve(&link->pair, bytes, out_region);
}

static rp_status inproc_commit(rpi_link *base, size_t bytes) {
    inproc_link *link = (inproc_link *)base;
    RP_TRY(rpi_ring_pair_commit(&link->pair, bytes));
    rpi_link_count_sent(base, bytes);
    return RP_OK;
}

static rp_status inproc_peek(rpi_link *base, const void **out_frame, size_t *out_bytes) {
    inproc_link *link = (inproc_link *)base;
    if (link->sticky.status != RP_OK) return rpi_sticky_error_raise(&link->sticky);
    bool closed = peer_closed(link); /* read before looking: frames that it committed before are
                                      * then seen */
    rp_status status = rpi_ring_pair_peek(&link->pair, out_frame, out_bytes);
    if (status == RP_PENDING && closed) {
        gone(link);
        return rpi_sticky_error_raise(&link->sticky);
    }
    return status;
}

static void inproc_release(rpi_link *base) {
    inproc_link *link = (inproc_link *)base;
    rpi_link_count_received(base, link->pair.held.bytes);
    rpi_ring_pair_release(&link->pair);
}

static rp_status inproc_progress(rpi_endpoint *base) {
    (void)base; /* memory moves by itself */
    return RP_OK;
}

static void inproc_disarm(rpi_endpoint *base) {
    inproc_endpoint *endpoint = (inproc_endpoint *)base;
    for (int peer = 0; peer < base->world; peer++)
        if (endpoint->links[peer]) rpi_ring_pair_disarm(&endpoint->links[peer]->pair);
    rpi_event_clear(endpoint->waker->fd);
}

static bool inproc_arm(rpi_endpoint *base, int *out_fd, int64_t *wake_at_ns) {
    inproc_endpoint *endpoint = (inproc_endpoint *)base;
    *out_fd = endpoint->waker->fd;
    *wake_at_ns = RPI_NEVER_NS;
    for (int peer = 0; peer < base->world; peer++) {
        inproc_link *link = endpoint->links[peer];
        if (!link) continue;
        if (rpi_ring_pair_arm(&link->pair)) return true;
        bool asks = link->pair.held.bytes == 0 || rpi_ring_pair_is_starved(&link->pair);
        if (asks && peer_closed(link) && !link->sticky.told) return true;
    }
    return false;
}

static rp_status inproc_flushed(rpi_endpoint *base) {
    (void)base; /* the pipe keeps committed frames until the peer has read them */
    return RP_OK;
}

const rpi_transport rpi_transport_inproc = {
    .name = "inproc",
    .summary = "memory of one process; ranks are threads",
    .checksum = false,
    .reaches = inproc_reaches,
    .open = inproc_open,
    .address = inproc_address,
    .connect = inproc_connect,
    .call = inproc_call,
    .connected = inproc_connected,
    .reserve = inproc_reserve,
    .commit = inproc_commit,
    .peek = inproc_peek,
    .release = inproc_release,
    .progress = inproc_progress,
    .arm = inproc_arm,
    .disarm = inproc_disarm,
    .flushed = inproc_flushed,
    .close = inproc_close,
    .close_after_fork = inproc_close_after_fork,
};
