/* Frames of a link: written where the ring has room, read in place; and frames whose payload is
 * in a buffer. */
#include "net/bytes/frame.h"
#include "net/link/endpoint.h"
#include "net/shm/shm_endpoint.h"

#include <string.h>

static rp_status gone(rpi_shm_link *link) {
    link->sticky.told = true; /* but frames that arrived before are still to be read */
    return RP_FAIL(PEER,
                   "connection closed by peer: rank %d closed its end or its process ended",
                   link->base.peer);
}

rp_status rpi_shm_reserve(rpi_link *base, size_t bytes, void **out_region) {
    rpi_shm_link *link = (rpi_shm_link *)base;
    RP_TRY(rpi_sticky_error_raise(&link->sticky));
    if (rpi_shm_is_gone(link)) return gone(link);
    rp_status status = base->traffic == RPI_TRAFFIC_BULK
                           ? rpi_ring_pair_reserve_bulk(&link->pair, bytes, out_region)
                           : rpi_ring_pair_reserve(&link->pair, bytes, out_region);
    if (status == RP_PENDING || status == RP_CORRUPT)
        rpi_shm_mark_ready((rpi_shm_endpoint *)base->endpoint, link);
    return status == RP_CORRUPT ? rpi_sticky_error_keep(&link->sticky, status) : status;
}

rp_status rpi_shm_commit(rpi_link *base, size_t bytes) {
    rpi_shm_link *link = (rpi_shm_link *)base;
    RP_TRY(rpi_ring_pair_commit(&link->pair, bytes));
    rpi_link_count_sent(base, bytes);
    return RP_OK;
}

void rpi_shm_release(rpi_link *base) {
    rpi_shm_link *link = (rpi_shm_link *)base;
    rpi_link_count_received(base, link->lies != RPI_SHM_LIES_BEHIND
                                      ? RPI_FRAME_HEADER_BYTES + link->payload_bytes
                                      : link->pair.held.bytes);
    rpi_ring_pair_release(&link->pair);
    link->lies = RPI_SHM_LIES_BEHIND;
    link->payload = NULL;
    rpi_shm_buffers_release(&link->buffers);
    rpi_shm_mark_ready((rpi_shm_endpoint *)base->endpoint, link); /* for the frame behind it */
}

/* RP_PENDING: it is in a buffer that is not mapped here. */
static rp_status find_payload(rpi_shm_link *link, const void *frame, size_t bytes) {
    rpi_shm_place place;
    if (bytes != RPI_SHM_PLACE_FRAME_BYTES)
        return RP_FAIL(CORRUPT, "a place in %zu bytes", bytes);
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

/* RP_PENDING: the frame was revoked, and is skipped. */
static rp_status peek_place(rpi_shm_link *link, const void *frame, size_t *in_out_bytes) {
    rp_status status = RP_OK;
    if (link->lies == RPI_SHM_LIES_BEHIND) { /* it has not been looked for */
        status = find_payload(link, frame, *in_out_bytes);
        if (!rpi_ring_pair_is_valid(&link->pair)) { /* its buffer may be gone, too */
            rpi_shm_release(&link->base);
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
static void clear_ready(const rpi_shm_link *link) {
    const rpi_shm_endpoint *endpoint = (const rpi_shm_endpoint *)link->base.endpoint;
    bool rings = endpoint->doorbell.page && !rpi_ring_pair_asks(&link->pair);
    if (rings) rpi_rank_set_remove(&endpoint->doorbell.links, link->base.peer);
}

/* A process that does not sleep rarely looks at sockets, so the peer counts its notes in the
 * ring, too. */
static void receive_noted(rpi_shm_link *link) {
    rpi_shm_endpoint *endpoint = (rpi_shm_endpoint *)link->base.endpoint;
    if (endpoint->zero_copy && link->stage == RPI_SHM_UP &&
        rpi_ring_pair_has_notes(&link->pair))
        rpi_shm_receive_notes(endpoint, link);
}

rp_status rpi_shm_peek(rpi_link *base, const void **out_frame, size_t *out_bytes) {
    rpi_shm_link *link = (rpi_shm_link *)base;
    receive_noted(link);
    RP_TRY(rpi_sticky_error_raise(&link->sticky));
    rp_status status = next_frame(link, out_frame, out_bytes);
    if (status == RP_OK) return status;
    if (status == RP_PENDING && link->stage == RPI_SHM_UP) {
        clear_ready(link);
        return status;
    }
    /* Everything that a process wrote before its end is visible once the end is. */
    if (status == RP_PENDING) status = gone(link);
    rpi_sticky_error_keep(&link->sticky, status);
    return rpi_sticky_error_raise(&link->sticky);
}
