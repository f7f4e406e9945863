/* A transport that wraps another and makes it as slow as a network: the wrapper of `--link`.
 *
 * Every frame is sent inside a frame of its own, whose header has the time when its first byte
 * left in the model of link_shape.h; the receiver makes it visible when its last byte would
 * have arrived. A frame that has arrived in the model gets its place on the way in, in order of
 * arrival over all links; frames sent later arrive later, so no place is given too early.
 * arrivals.h has the frames of one link. */
#include "net/link/transport_kinds.h"

#include "base/clock.h"
#include "base/memory.h"
#include "net/bytes/frame.h"
#include "net/link/endpoint.h"
#include "net/shaped/arrivals.h"
#include "net/shaped/host_nic.h"
#include "net/shaped/link_shape.h"

#include <string.h>

enum { WRAP_BYTES = RPI_FRAME_HEADER_BYTES };

typedef struct shaped_link {
    rpi_link base;
    rpi_link *inner;
    unsigned char *reserved; /* of the frame, with the wrapping; NULL: none is reserved */
    size_t reserved_bytes;
    bool starved;
    rpi_nic_queue waiting; /* for the way out */

    rpi_arrivals come;
} shaped_link;

typedef struct shaped_endpoint {
    rpi_endpoint base;
    const rpi_transport *kind; /* of the inner endpoint */
    rpi_endpoint *inner;
    size_t frame_bytes;
    rpi_nic nic;         /* this rank's own */
    rpi_host_nic *host;  /* its host's NIC instead; NULL: none. Borrowed */
    shaped_link **links; /* [world] */
} shaped_endpoint;

/* Clocks are compared, and only those of one machine are the same. Whether the inner transport
 * reaches the peer is asked separately. */
static bool shaped_reaches(const rpi_peer_info *self, const rpi_peer_info *peer) {
    return strcmp(self->machine, peer->machine) == 0;
}

static void shaped_close(rpi_endpoint *base) {
    shaped_endpoint *endpoint = (shaped_endpoint *)base;
    if (!endpoint) return;
    if (endpoint->inner) endpoint->kind->close(endpoint->inner);
    for (int peer = 0; endpoint->links && peer < base->world; peer++)
        if (endpoint->links[peer]) {
            rpi_arrivals_free(&endpoint->links[peer]->come);
            rpi_free(endpoint->links[peer]);
        }
    rpi_free(endpoint->links);
    rpi_free(endpoint);
}

static rp_status shaped_fill(shaped_endpoint *endpoint, const rpi_endpoint_options *options) {
    rpi_endpoint_options inner = *options;
    inner.frame_bytes += WRAP_BYTES;
    inner.shape = (rpi_link_shape){0};
    inner.inner = NULL;
    inner.nic = NULL;
    RP_TRY(rpi_alloc_array((size_t)options->world, sizeof *endpoint->links, "links",
                           &endpoint->links));
    RP_TRY(endpoint->kind->open(&inner, &endpoint->inner));
    endpoint->base.tls = endpoint->inner->tls;
    return RP_OK;
}

static rp_status shaped_open(const rpi_endpoint_options *options, rpi_endpoint **out_endpoint) {
    shaped_endpoint *endpoint = NULL;
    RP_TRY(rpi_endpoint_check(options));
    if (!options->inner || options->inner == &rpi_transport_shaped)
        return RP_FAIL(INVALID, "the shaping wrapper needs a transport to wrap");
    if (options->shape.bytes_per_s < 0 || options->shape.latency_s < 0)
        return RP_FAIL(INVALID, "a link of %g bytes a second and %g s",
                       options->shape.bytes_per_s, options->shape.latency_s);
    RP_TRY(rpi_alloc(sizeof *endpoint, "an endpoint", &endpoint));
    endpoint->base = (rpi_endpoint){.transport = &rpi_transport_shaped,
                                    .rank = options->rank,
                                    .world = options->world,
                                    .inner = options->inner};
    endpoint->kind = options->inner;
    endpoint->frame_bytes = options->frame_bytes;
    endpoint->host = options->nic;
    rpi_nic_init(&endpoint->nic, &options->shape, options->frame_bytes);
    rp_status status = shaped_fill(endpoint, options);
    if (status != RP_OK) {
        shaped_close(&endpoint->base);
        return status;
    }
    *out_endpoint = &endpoint->base;
    return RP_OK;
}

static rp_status shaped_address(rpi_endpoint *base, char *text, size_t bytes) {
    shaped_endpoint *endpoint = (shaped_endpoint *)base;
    return endpoint->kind->address(endpoint->inner, text, bytes);
}

static rp_status new_link(shaped_endpoint *endpoint, int peer, shaped_link **out_link) {
    RP_TRY(rpi_peer_check(&endpoint->base, peer));
    if (endpoint->links[peer]) return RP_FAIL(STATE, "rank %d is connected already", peer);
    RP_TRY(rpi_alloc(sizeof **out_link, "a link", out_link));
    (*out_link)->base = (rpi_link){.endpoint = &endpoint->base, .peer = peer};
    (*out_link)->come = (rpi_arrivals){.peer = peer, .frame_bytes = endpoint->frame_bytes};
    return RP_OK;
}

static rp_status shaped_connect(rpi_endpoint *base, int peer, const char *address,
                                int64_t deadline_ns, rpi_link **out_link) {
    shaped_endpoint *endpoint = (shaped_endpoint *)base;
    shaped_link *link = NULL;
    RP_TRY(new_link(endpoint, peer, &link));
    rp_status status =
        endpoint->kind->connect(endpoint->inner, peer, address, deadline_ns, &link->inner);
    if (status != RP_OK) {
        rpi_free(link);
        return status;
    }
    endpoint->links[peer] = link;
    *out_link = &link->base;
    return RP_OK;
}

static rp_status shaped_call(rpi_endpoint *base, int peer, const char *address) {
    shaped_endpoint *endpoint = (shaped_endpoint *)base;
    return endpoint->kind->call(endpoint->inner, peer, address);
}

static rp_status shaped_connected(rpi_endpoint *base, int *out_peer, rpi_link **out_link) {
    shaped_endpoint *endpoint = (shaped_endpoint *)base;
    shaped_link *link = NULL;
    rpi_link *inner = NULL;
    rp_status status = endpoint->kind->connected(endpoint->inner, out_peer, &inner);
    if (status != RP_OK) return status;
    RP_TRY(new_link(endpoint, *out_peer, &link)); /* close() has the inner one */
    link->inner = inner;
    endpoint->links[*out_peer] = link;
    *out_link = &link->base;
    return RP_OK;
}

static shaped_endpoint *endpoint_of(const rpi_link *link) {
    return (shaped_endpoint *)link->endpoint;
}

static rpi_nic *take_nic(shaped_endpoint *endpoint) {
    return endpoint->host ? rpi_host_nic_lock(endpoint->host) : &endpoint->nic;
}

static void give_nic(shaped_endpoint *endpoint) {
    if (endpoint->host) rpi_host_nic_unlock(endpoint->host);
}

/* --- out --- */

/* Urgent frames do not wait for the model's queue. */
static bool has_to_wait(const shaped_endpoint *endpoint, const shaped_link *link) {
    return link->base.traffic != RPI_TRAFFIC_URGENT &&
           rpi_nic_takes_at(&endpoint->nic, &link->waiting) > rpi_now_ns();
}

static rp_status shaped_reserve(rpi_link *base, size_t bytes, void **out_region) {
    shaped_link *link = (shaped_link *)base;
    shaped_endpoint *endpoint = endpoint_of(base);
    void *region = NULL;
    size_t most = endpoint->frame_bytes;
    if (bytes == 0 || bytes > most)
        return RP_FAIL(INVALID, "a frame of %zu bytes; 1 to %zu are allowed", bytes, most);
    if (link->reserved_bytes < bytes) {
        link->reserved = NULL;
        link->reserved_bytes = 0;
        RP_TRY(endpoint->kind->reserve(link->inner, WRAP_BYTES + bytes, &region));
        bool waits = has_to_wait(endpoint, link);
        if (waits || base->traffic != RPI_TRAFFIC_URGENT) link->starved = waits;
        if (waits) return RP_PENDING;
        link->reserved = region;
        link->reserved_bytes = bytes;
    }
    *out_region = link->reserved + WRAP_BYTES;
    return RP_OK;
}

/* When its first byte leaves. */
static int64_t send_by_model(shaped_endpoint *endpoint, shaped_link *link, size_t bytes) {
    bool urgent = link->base.traffic == RPI_TRAFFIC_URGENT;
    int64_t now_ns = rpi_now_ns();
    rpi_nic *nic = take_nic(endpoint);
    int64_t start_ns = urgent ? rpi_nic_send_urgent(nic, now_ns, bytes)
                              : rpi_nic_send(nic, &link->waiting, now_ns, bytes);
    give_nic(endpoint);
    link->base.passable += !urgent;
    return start_ns;
}

static rp_status shaped_commit(rpi_link *base, size_t bytes) {
    shaped_link *link = (shaped_link *)base;
    shaped_endpoint *endpoint = endpoint_of(base);
    if (bytes == 0 || bytes > link->reserved_bytes)
        return RP_FAIL(STATE, "%zu bytes posted into a region of %zu", bytes,
                       link->reserved_bytes);
    int64_t start_ns = send_by_model(endpoint, link, bytes);
    rpi_frame_header wrap = {.kind = RPI_FRAME_TIMED,
                             .sequence = (uint64_t)start_ns,
                             .part = (int32_t)base->traffic,
                             .count = base->behind};
    rpi_frame_seal(link->reserved, &wrap, bytes, false);
    link->reserved = NULL;
    link->reserved_bytes = 0;
    RP_TRY(endpoint->kind->commit(link->inner, WRAP_BYTES + bytes));
    rpi_link_count_sent(base, bytes);
    return RP_OK;
}

/* --- in --- */

/* Of all links the frame that arrived first and has no place on the way in yet; NULL: none. */
static rpi_arrival *first_arrived(shaped_endpoint *endpoint, int64_t now_ns, int order) {
    rpi_arrival *first = NULL;
    for (int peer = 0; peer < endpoint->base.world; peer++) {
        shaped_link *link = endpoint->links[peer];
        rpi_arrival *known = link ? rpi_arrivals_unplaced(&link->come, order) : NULL;
        if (!known || rpi_nic_arrival(&endpoint->nic, known->start_ns) > now_ns) continue;
        if (!first || known->start_ns < first->start_ns) first = known;
    }
    return first;
}

static void place(shaped_endpoint *endpoint, rpi_arrival *known, int order) {
    rpi_nic *nic = take_nic(endpoint);
    known->visible_ns = order == RPI_ARRIVALS_URGENT
                            ? rpi_nic_receive_urgent(nic, known->start_ns, known->bytes)
                            : rpi_nic_receive(nic, known->start_ns, known->bytes);
    give_nic(endpoint);
    known->placed = true;
}

/* Failures of single links are found again when their frames are asked for. */
static void refresh(shaped_endpoint *endpoint, int64_t now_ns) {
    for (int peer = 0; peer < endpoint->base.world; peer++)
        if (endpoint->links[peer])
            rpi_arrivals_learn(&endpoint->links[peer]->come, endpoint->links[peer]->inner,
                               now_ns);
    for (;;) {
        rpi_arrival *other = first_arrived(endpoint, now_ns, RPI_ARRIVALS_OTHERS);
        rpi_arrival *urgent = first_arrived(endpoint, now_ns, RPI_ARRIVALS_URGENT);
        if (!other && !urgent) return;
        bool is_urgent = !other || (urgent && urgent->start_ns <= other->start_ns);
        place(endpoint, is_urgent ? urgent : other,
              is_urgent ? RPI_ARRIVALS_URGENT : RPI_ARRIVALS_OTHERS);
    }
}

static rp_status shaped_peek(rpi_link *base, const void **out_frame, size_t *out_bytes) {
    shaped_link *link = (shaped_link *)base;
    int64_t now_ns = rpi_now_ns();
    refresh(endpoint_of(base), now_ns);
    const rpi_arrival *first = rpi_arrivals_look(&link->come, now_ns);
    if (!first) {
        if (rpi_arrivals_are_none(&link->come))
            RP_TRY(rpi_sticky_error_raise(&link->come.sticky));
        return RP_PENDING;
    }
    *out_frame = first->frame;
    *out_bytes = first->bytes;
    return RP_OK;
}

static void shaped_release(rpi_link *base) {
    shaped_link *link = (shaped_link *)base;
    size_t bytes = rpi_arrivals_release(&link->come, link->inner);
    if (bytes) rpi_link_count_received(base, bytes);
}

/* --- both --- */

static rp_status shaped_progress(rpi_endpoint *base) {
    shaped_endpoint *endpoint = (shaped_endpoint *)base;
    RP_TRY(endpoint->kind->progress(endpoint->inner));
    int64_t now_ns = rpi_now_ns();
    for (int peer = 0; peer < base->world; peer++) {
        shaped_link *link = endpoint->links[peer];
        if (link)
            link->base.settled = link->base.passable - rpi_nic_waiting(&link->waiting, now_ns);
    }
    refresh(endpoint, now_ns);
    return RP_OK;
}

static int64_t earlier(int64_t a_ns, int64_t b_ns) {
    return a_ns < b_ns ? a_ns : b_ns;
}

/* The model's next event on a link. */
static int64_t next_event_ns(const shaped_endpoint *endpoint, const shaped_link *link) {
    int64_t next_ns = rpi_arrivals_next_ns(&link->come, &endpoint->nic);
    return link->starved ? earlier(next_ns, rpi_nic_takes_at(&endpoint->nic, &link->waiting))
                         : next_ns;
}

static bool has_untold_fault(const shaped_link *link) {
    const rpi_sticky_error *sticky = &link->come.sticky;
    return rpi_arrivals_are_none(&link->come) && sticky->status != RP_OK && !sticky->told;
}

static bool shaped_arm(rpi_endpoint *base, int *out_fd, int64_t *wake_at_ns) {
    shaped_endpoint *endpoint = (shaped_endpoint *)base;
    bool ready = endpoint->kind->arm(endpoint->inner, out_fd, wake_at_ns);
    int64_t now_ns = rpi_now_ns();
    for (int peer = 0; peer < base->world; peer++) {
        shaped_link *link = endpoint->links[peer];
        if (!link) continue;
        ready |= has_untold_fault(link);
        *wake_at_ns = earlier(*wake_at_ns, next_event_ns(endpoint, link));
    }
    return ready || *wake_at_ns <= now_ns;
}

static void shaped_disarm(rpi_endpoint *base) {
    shaped_endpoint *endpoint = (shaped_endpoint *)base;
    endpoint->kind->disarm(endpoint->inner);
}

static rp_status shaped_flushed(rpi_endpoint *base) {
    shaped_endpoint *endpoint = (shaped_endpoint *)base;
    return endpoint->kind->flushed(endpoint->inner);
}

static rp_status shaped_delivered(rpi_endpoint *base) {
    shaped_endpoint *endpoint = (shaped_endpoint *)base;
    if (!endpoint->kind->delivered) return endpoint->kind->flushed(endpoint->inner);
    return endpoint->kind->delivered(endpoint->inner);
}

static void shaped_describe(rpi_link *base, char *text, size_t bytes) {
    const shaped_link *link = (const shaped_link *)base;
    const rpi_transport *kind = endpoint_of(base)->kind;
    text[0] = '\0';
    if (kind->describe) kind->describe(link->inner, text, bytes);
}

static void shaped_close_after_fork(rpi_endpoint *base) {
    shaped_endpoint *endpoint = (shaped_endpoint *)base;
    endpoint->kind->close_after_fork(endpoint->inner);
}

const rpi_transport rpi_transport_shaped = {
    .name = "shaped",
    .summary = "wraps another transport to be as slow as a network (--link)",
    .checksum = true, /* as the network that the model stands for would need */
    .reaches = shaped_reaches,
    .open = shaped_open,
    .address = shaped_address,
    .connect = shaped_connect,
    .call = shaped_call,
    .connected = shaped_connected,
    .reserve = shaped_reserve,
    .commit = shaped_commit,
    .peek = shaped_peek,
    .release = shaped_release,
    .progress = shaped_progress,
    .arm = shaped_arm,
    .disarm = shaped_disarm,
    .flushed = shaped_flushed,
    .delivered = shaped_delivered,
    .describe = shaped_describe,
    .close = shaped_close,
    .close_after_fork = shaped_close_after_fork,
};
