#include "harness/faulty.h"

#include "base/memory.h"
#include "net/bytes/frame.h"

#include <string.h>

typedef struct faulty_link {
    rpi_link base;
    rpi_endpoint endpoint; /* carries our functions */
    rpi_transport transport;
    rpi_link *inner;
    faulty_plan plan;
    uint64_t posted;
    unsigned char *lent;
} faulty_link;

static const rpi_transport *kind_of(const faulty_link *link) {
    return link->inner->endpoint->transport;
}

static bool struck(const faulty_link *link, faulty_kind kind) {
    return link->plan.kind == kind && link->posted >= link->plan.frame;
}

static rp_status faulty_lend(rpi_link *base, size_t bytes, void **out_region) {
    faulty_link *link = (faulty_link *)base;
    if (struck(link, FAULTY_STALL)) return RP_PENDING;
    if (struck(link, FAULTY_CLOSE))
        return RP_FAIL(PEER, "rank %d closed the connection (as planned)", base->peer);
    RP_TRY(kind_of(link)->reserve(link->inner, bytes, out_region));
    link->lent = *out_region;
    return RP_OK;
}

static rp_status post_again(faulty_link *link, const void *frame, size_t bytes) {
    void *region = NULL;
    RP_TRY(kind_of(link)->reserve(link->inner, bytes, &region));
    memcpy(region, frame, bytes);
    return kind_of(link)->commit(link->inner, bytes);
}

static rp_status post_twice(faulty_link *link, size_t bytes) {
    void *copy = NULL;
    RP_TRY(rpi_alloc(bytes, "a copy of a frame", &copy));
    memcpy(copy, link->lent, bytes);
    rp_status status = kind_of(link)->commit(link->inner, bytes);
    if (status == RP_OK) status = post_again(link, copy, bytes);
    rpi_free(copy);
    return status;
}

static rp_status commit_faulty(faulty_link *link, size_t bytes) {
    switch (link->plan.kind) {
    case FAULTY_DROP: return RP_OK; /* the region is lent again */
    case FAULTY_TWICE: return post_twice(link, bytes);
    case FAULTY_CORRUPT_HEADER: link->lent[RPI_FRAME_HEADER_BYTES / 2] ^= 4; break;
    case FAULTY_CORRUPT_PAYLOAD: link->lent[bytes - 1] ^= 4; break;
    case FAULTY_CUT: bytes--; break;
    case FAULTY_NOT:
    case FAULTY_STALL:
    case FAULTY_CLOSE: break;
    }
    return kind_of(link)->commit(link->inner, bytes);
}

/* Frames without data come when time has it so: a plan does not count them. */
static bool is_counted(const faulty_link *link) {
    uint8_t kind = link->lent[offsetof(rpi_frame_header, kind)];
    return kind == RPI_FRAME_DATA || kind == RPI_FRAME_EAGER;
}

static rp_status faulty_post(rpi_link *base, size_t bytes) {
    faulty_link *link = (faulty_link *)base;
    bool now = is_counted(link) && link->posted++ == link->plan.frame;
    rp_status status =
        now ? commit_faulty(link, bytes) : kind_of(link)->commit(link->inner, bytes);
    base->bytes_sent = link->inner->bytes_sent;
    return status;
}

static rp_status faulty_peek(rpi_link *base, const void **out_frame, size_t *out_bytes) {
    faulty_link *link = (faulty_link *)base;
    return kind_of(link)->peek(link->inner, out_frame, out_bytes);
}

static void faulty_release(rpi_link *base) {
    faulty_link *link = (faulty_link *)base;
    kind_of(link)->release(link->inner);
    base->bytes_received = link->inner->bytes_received;
}

/* Everything of an endpoint is asked of the one beneath. */
static rpi_endpoint *beneath(rpi_endpoint *endpoint) {
    faulty_link *link =
        (faulty_link *)(void *)((char *)endpoint - offsetof(faulty_link, endpoint));
    return link->inner->endpoint;
}

static rp_status faulty_progress(rpi_endpoint *endpoint) {
    return beneath(endpoint)->transport->progress(beneath(endpoint));
}

static bool faulty_arm(rpi_endpoint *endpoint, int *out_fd, int64_t *wake_at_ns) {
    return beneath(endpoint)->transport->arm(beneath(endpoint), out_fd, wake_at_ns);
}

static void faulty_disarm(rpi_endpoint *endpoint) {
    beneath(endpoint)->transport->disarm(beneath(endpoint));
}

static rp_status faulty_flushed(rpi_endpoint *endpoint) {
    return beneath(endpoint)->transport->flushed(beneath(endpoint));
}

static rp_status faulty_delivered(rpi_endpoint *endpoint) {
    const rpi_transport *inner = beneath(endpoint)->transport;
    return (inner->delivered ? inner->delivered : inner->flushed)(beneath(endpoint));
}

rp_status faulty_wrap(rpi_link *inner, const faulty_plan *plan, rpi_link **out_link) {
    faulty_link *link = NULL;
    RP_TRY(rpi_alloc(sizeof *link, "a faulty link", &link));
    link->transport = *inner->endpoint->transport;
    link->transport.reserve = faulty_lend;
    link->transport.commit = faulty_post;
    link->transport.peek = faulty_peek;
    link->transport.release = faulty_release;
    link->transport.progress = faulty_progress;
    link->transport.arm = faulty_arm;
    link->transport.disarm = faulty_disarm;
    link->transport.flushed = faulty_flushed;
    link->transport.delivered = faulty_delivered;
    link->transport.zero_copy = NULL;
    link->endpoint = *inner->endpoint;
    link->endpoint.transport = &link->transport;
    link->base = *inner;
    link->base.endpoint = &link->endpoint;
    link->inner = inner;
    link->plan = *plan;
    *out_link = &link->base;
    return RP_OK;
}

void faulty_free(rpi_link *link) {
    rpi_free(link);
}
