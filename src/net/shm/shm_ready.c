/* Which links are ready, and how to sleep until one is: by the doorbell in larger worlds, by
 * examining all links in smaller ones. Also handles what arrives by sockets: notes, and the end
 * of a peer. */
#include "base/clock.h"
#include "base/event.h"
#include "net/memory/buffers.h"
#include "net/shm/shm_endpoint.h"

#include <errno.h>
#include <sys/epoll.h>

enum {
    EVENTS = 64,
    LOOK_EVERY =
        256, /* iterations between looks at the sockets by a caller that never sleeps */
};

const rpi_rank_set *rpi_shm_ready(rpi_endpoint *base) {
    rpi_shm_endpoint *endpoint = (rpi_shm_endpoint *)base;
    if (!endpoint->doorbell.page) return NULL;
    rpi_doorbell_take(&endpoint->doorbell);
    return &endpoint->doorbell.links;
}

/* A peer that does not use buffers sends nothing after it has connected, so this is its end. */
void rpi_shm_receive_notes(rpi_shm_endpoint *endpoint, rpi_shm_link *link) {
    rp_status status =
        endpoint->zero_copy ? rpi_shm_buffers_receive(&link->buffers, link->socket) : RP_PEER;
    rpi_ring_pair_note(&link->pair, link->buffers.said); /* it answers offers */
    if (status == RP_OK || status == RP_PENDING) return;
    if (status == RP_CORRUPT) rpi_sticky_error_keep(&link->sticky, status);
    if (link->stage == RPI_SHM_UP) rpi_shm_enter(link, RPI_SHM_GONE);
    rpi_shm_mark_ready(endpoint, link);
    epoll_ctl(endpoint->epoll_fd, EPOLL_CTL_DEL, link->socket, NULL);
}

/* Has a process ended or sent a note, or was our event descriptor written? One system call. */
static rp_status look(rpi_shm_endpoint *endpoint) {
    struct epoll_event events[EVENTS];
    int count = epoll_wait(endpoint->epoll_fd, events, EVENTS, 0);
    if (count < 0 && errno != EINTR) return RP_FAIL_ERRNO(IO, "cannot watch descriptors");
    for (int i = 0; i < count; i++) {
        rpi_shm_link *link = events[i].data.ptr;
        if (!link) {
            rpi_event_clear(endpoint->event);
        } else {
            rpi_shm_receive_notes(endpoint, link);
        }
    }
    return RP_OK;
}

/* A process that frees and allocates again has room at its peers as soon as they know of it. */
static void drop_freed(rpi_shm_endpoint *endpoint) {
    unsigned freed = rpi_buffers_freed();
    bool told = true;
    if (!endpoint->zero_copy || freed == endpoint->freed) return;
    for (int peer = 0; peer < endpoint->base.world; peer++) {
        rpi_shm_link *link = endpoint->links[peer];
        if (!link || rpi_shm_is_gone(link)) continue;
        told &= rpi_shm_buffers_drop_freed(&link->buffers, link->socket);
        rpi_ring_pair_note(&link->pair, link->buffers.said);
    }
    if (told) endpoint->freed = freed;
}

rp_status rpi_shm_progress(rpi_endpoint *base) {
    rpi_shm_endpoint *endpoint = (rpi_shm_endpoint *)base;
    drop_freed(endpoint);
    return ++endpoint->passes % LOOK_EVERY ? RP_OK : look(endpoint);
}

static bool arm_link(rpi_shm_link *link) {
    if (rpi_ring_pair_arm(&link->pair)) return true;
    bool asks = link->pair.held.bytes == 0 || rpi_ring_pair_is_starved(&link->pair);
    return asks && rpi_shm_is_gone(link) && !link->sticky.told;
}

static bool arm_all(const rpi_shm_endpoint *endpoint) {
    for (int peer = 0; peer < endpoint->base.world; peer++)
        if (endpoint->links[peer] && arm_link(endpoint->links[peer])) return true;
    return false;
}

/* Those that may be ready, and those from which this side waits for more than frames; the
 * others ring. */
static bool arm_noted(rpi_shm_endpoint *endpoint) {
    rpi_doorbell *doorbell = &endpoint->doorbell;
    rpi_doorbell_arm(doorbell);
    for (int peer = rpi_rank_set_next(&doorbell->links, 0); peer >= 0;
         peer = rpi_rank_set_next(&doorbell->links, peer + 1)) {
        rpi_shm_link *link = endpoint->links[peer];
        if (arm_link(link)) return true;
        bool ends = rpi_shm_is_gone(link) &&
                    link->sticky.status == RP_OK; /* peek() has still to say so */
        if (!ends && !rpi_ring_pair_asks(&link->pair))
            rpi_rank_set_remove(&doorbell->links, peer);
    }
    return false;
}

bool rpi_shm_arm(rpi_endpoint *base, int *out_fd, int64_t *wake_at_ns) {
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

void rpi_shm_disarm(rpi_endpoint *base) {
    rpi_shm_endpoint *endpoint = (rpi_shm_endpoint *)base;
    if (endpoint->doorbell.page) disarm_noted(endpoint);
    for (int peer = 0; !endpoint->doorbell.page && peer < base->world; peer++)
        if (endpoint->links[peer]) rpi_ring_pair_disarm(&endpoint->links[peer]->pair);
    if (endpoint->armed) look(endpoint);
    endpoint->armed = false;
}
