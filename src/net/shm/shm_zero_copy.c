/* Payloads that stay in place: frames that name the place of their payload. */
#include "net/bytes/frame.h"
#include "net/link/endpoint.h"
#include "net/shm/shm_endpoint.h"

#include <string.h>

static bool shm_reaches_payload(rpi_link *base, const void *payload, size_t bytes) {
    rpi_shm_link *link = (rpi_shm_link *)base;
    const rpi_shm_endpoint *endpoint = (const rpi_shm_endpoint *)base->endpoint;
    if (!endpoint->zero_copy || rpi_shm_is_gone(link) ||
        !rpi_ring_pair_may_name_places(&link->pair))
        return false;
    bool reached =
        rpi_shm_buffers_reach(&link->buffers, link->socket, payload, bytes, &link->to);
    rpi_ring_pair_note(&link->pair, link->buffers.said);
    return reached;
}

/* As it was reserved: a header, and room for the place. number NULL: no payload of ours is in
 * use. */
static rp_status post_to(rpi_shm_link *link, size_t bytes, uint32_t *out_number) {
    void *region = NULL;
    uint32_t number = 0;
    RP_TRY(rpi_shm_reserve(&link->base, RPI_SHM_PLACE_FRAME_BYTES, &region));
    memcpy((char *)region + RPI_FRAME_HEADER_BYTES, &link->to, sizeof link->to);
    RP_TRY(rpi_ring_pair_commit_place(&link->pair, RPI_SHM_PLACE_FRAME_BYTES, &number));
    rpi_shm_mark_ready((rpi_shm_endpoint *)link->base.endpoint, link); /* for its return */
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
        rpi_shm_mark_ready((rpi_shm_endpoint *)base->endpoint, link);
        rpi_sticky_error_keep(&link->sticky, status);
    }
    return status == RP_OK;
}

/* The dead do not write. */
static bool shm_revoke(rpi_link *base, uint32_t number) {
    rpi_shm_link *link = (rpi_shm_link *)base;
    if (rpi_ring_pair_revoke(&link->pair, number) == RP_OK) return true;
    rpi_shm_receive_notes((rpi_shm_endpoint *)base->endpoint, link);
    return rpi_shm_is_gone(link) || !rpi_ring_pair_is_writing_to(&link->pair, number);
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

const rpi_zero_copy rpi_shm_zero_copy = {
    .reaches = shm_reaches_payload,
    .frame_bytes = RPI_SHM_PLACE_FRAME_BYTES,
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
