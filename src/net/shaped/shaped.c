/* A transport that wraps another and makes it as slow as a network: the wrapper of `--link`.
 *
 * Every frame travels inside of a frame of its own, whose header says when its first byte left
 * in the model of link_shape.h; the receiver shows it when its last byte would have come. A
 * frame that has arrived by the model is given its place on the way in, in order of arrival
 * over all links; whatever is sent later arrives later, so no place is given away too early.
 *
 * The wrapped transport keeps the order of posting, in which an urgent frame stands behind bulk
 * that it has overtaken in the model. So bulk that is not to be seen yet is copied out of it:
 *
 *     wrapped transport    bulk 3 | urgent 2 | bulk 2 | bulk 1
 *                            |  what comes is looked at until it has to stay where it lies
 *     others               bulk 1, bulk 2                   each in order, shown when its time
 *     urgent               urgent 2, behind the frames      has come; what is urgent first, but
 *                          that had left before it          behind those */
#include "net/link/transport_kinds.h"

#include "base/clock.h"
#include "base/memory.h"
#include "net/bytes/fault.h"
#include "net/bytes/frame.h"
#include "net/link/endpoint.h"
#include "net/shaped/host_nic.h"
#include "net/shaped/link_shape.h"

#include <string.h>

enum { WRAP_BYTES = RPI_FRAME_HEADER_BYTES };

/* Copies are made of bulk, and of what is short; and of so many frames of a link at most. */
enum { KNOWN_MAX = 8, SHORT_BYTES = 16 * 1024 };

/* A frame that has come. */
typedef struct known_frame {
    const unsigned char *frame;
    size_t bytes;
    int64_t start_ns;   /* its first byte left the sender */
    bool placed;        /* on the way in */
    int64_t visible_ns; /* its last byte comes; once placed */
    uint64_t behind;    /* so many others of its link had left before it */
    bool may_be_copied;
    unsigned char *copy; /* where it lies; NULL: in the wrapped transport */
} known_frame;

typedef struct known_frames {
    known_frame at[KNOWN_MAX];
    uint32_t first, count;
} known_frames;

enum { OTHERS, URGENT, ORDERS };

typedef struct shaped_link {
    rpi_link base;
    rpi_link *inner;
    unsigned char *lent; /* NULL: nothing is; the wrapping included */
    size_t lent_bytes;
    bool starved;
    rpi_nic_queue waiting; /* for the way out */

    known_frames known[ORDERS];
    known_frame *inside; /* the one that lies in the wrapped transport; NULL: none */
    known_frames *seen;  /* the caller looks at the first of these; NULL: at none */
    uint64_t released;   /* of those that are not urgent, so far */
    unsigned char *spare[ORDERS * KNOWN_MAX]; /* memory for copies, of the longest frame each */
    int spares;
    rpi_fault fault;
} shaped_link;

static known_frame *frame_at(known_frames *frames, uint32_t index) {
    return &frames->at[(frames->first + index) % KNOWN_MAX];
}

typedef struct shaped_endpoint {
    rpi_endpoint base;
    const rpi_transport *kind; /* of the inner endpoint */
    rpi_endpoint *inner;
    size_t frame_bytes;
    rpi_nic nic;         /* this rank's own */
    rpi_host_nic *host;  /* instead: its host's; NULL: none. Borrowed */
    shaped_link **links; /* [world] */
} shaped_endpoint;

/* Clocks are compared, and only those of one machine are the same. The inner transport is asked
 * apart whether it reaches the peer. */
static bool shaped_reaches(const rpi_peer_info *self, const rpi_peer_info *peer) {
    return strcmp(self->machine, peer->machine) == 0;
}

static void free_link(shaped_endpoint *endpoint, shaped_link *link) {
    if (!link) return;
    for (int order = 0; order < ORDERS; order++)
        for (uint32_t i = 0; i < link->known[order].count; i++)
            rpi_free_pages(frame_at(&link->known[order], i)->copy, endpoint->frame_bytes);
    while (link->spares > 0) rpi_free_pages(link->spare[--link->spares], endpoint->frame_bytes);
    rpi_free(link);
}

static void shaped_close(rpi_endpoint *base) {
    shaped_endpoint *endpoint = (shaped_endpoint *)base;
    if (!endpoint) return;
    if (endpoint->inner) endpoint->kind->close(endpoint->inner);
    for (int peer = 0; endpoint->links && peer < base->world; peer++)
        free_link(endpoint, endpoint->links[peer]);
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

static rp_status shaped_met(rpi_endpoint *base, int *out_peer, rpi_link **out_link) {
    shaped_endpoint *endpoint = (shaped_endpoint *)base;
    shaped_link *link = NULL;
    rpi_link *inner = NULL;
    rp_status status = endpoint->kind->met(endpoint->inner, out_peer, &inner);
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

/* What is urgent waits for no queue of the model's. */
static bool has_to_wait(const shaped_endpoint *endpoint, const shaped_link *link) {
    return link->base.traffic != RPI_TRAFFIC_URGENT &&
           rpi_nic_takes_at(&endpoint->nic, &link->waiting) > rpi_now_ns();
}

static rp_status shaped_lend(rpi_link *base, size_t bytes, void **out_region) {
    shaped_link *link = (shaped_link *)base;
    shaped_endpoint *endpoint = endpoint_of(base);
    void *region = NULL;
    size_t most = endpoint->frame_bytes;
    if (bytes == 0 || bytes > most)
        return RP_FAIL(INVALID, "a frame of %zu bytes; 1 to %zu are allowed", bytes, most);
    if (link->lent_bytes < bytes) {
        link->lent = NULL;
        link->lent_bytes = 0;
        RP_TRY(endpoint->kind->lend(link->inner, WRAP_BYTES + bytes, &region));
        bool waits = has_to_wait(endpoint, link);
        if (waits || base->traffic != RPI_TRAFFIC_URGENT) link->starved = waits;
        if (waits) return RP_PENDING;
        link->lent = region;
        link->lent_bytes = bytes;
    }
    *out_region = link->lent + WRAP_BYTES;
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

static rp_status shaped_post(rpi_link *base, size_t bytes) {
    shaped_link *link = (shaped_link *)base;
    shaped_endpoint *endpoint = endpoint_of(base);
    if (bytes == 0 || bytes > link->lent_bytes)
        return RP_FAIL(STATE, "%zu bytes posted into a region of %zu", bytes, link->lent_bytes);
    int64_t start_ns = send_by_model(endpoint, link, bytes);
    rpi_frame_header wrap = {.kind = RPI_FRAME_TIMED,
                             .sequence = (uint64_t)start_ns,
                             .part = (int32_t)base->traffic,
                             .count = base->behind};
    rpi_frame_seal(link->lent, &wrap, bytes, false);
    link->lent = NULL;
    link->lent_bytes = 0;
    RP_TRY(endpoint->kind->post(link->inner, WRAP_BYTES + bytes));
    rpi_link_count_sent(base, bytes);
    return RP_OK;
}

/* --- in --- */

static rp_status unwrap(shaped_link *link, const void *frame, size_t bytes) {
    rpi_frame_header wrap;
    RP_TRY(rpi_frame_open(frame, bytes, false, &wrap));
    if (wrap.kind != RPI_FRAME_TIMED || wrap.bytes == 0 || wrap.sequence > INT64_MAX / 2 ||
        wrap.part < RPI_TRAFFIC_PLAIN || wrap.part > RPI_TRAFFIC_URGENT)
        return RP_FAIL(CORRUPT, "a frame from rank %d without the time it was sent",
                       link->base.peer);
    bool urgent = wrap.part == RPI_TRAFFIC_URGENT;
    known_frames *frames = &link->known[urgent ? URGENT : OTHERS];
    known_frame *known = frame_at(frames, frames->count++);
    *known = (known_frame){.frame = (const unsigned char *)frame + WRAP_BYTES,
                           .bytes = wrap.bytes,
                           .start_ns = (int64_t)wrap.sequence,
                           .behind = urgent ? wrap.count : 0,
                           .may_be_copied =
                               wrap.part != RPI_TRAFFIC_PLAIN || wrap.bytes <= SHORT_BYTES};
    link->inside = known;
    return RP_OK;
}

/* For one more than the one that is inside, which the wrapped transport is never without as
 * long as these are full: it has no news then. */
static bool has_room(const shaped_link *link) {
    return link->known[OTHERS].count < KNOWN_MAX && link->known[URGENT].count < KNOWN_MAX;
}

/* Nobody looks at it, and nobody may yet. */
static bool is_in_the_way(const shaped_link *link, int64_t now_ns) {
    const known_frame *inside = link->inside;
    if (!inside->may_be_copied || !has_room(link)) return false;
    if (link->seen && frame_at(link->seen, 0) == inside) return false;
    return !inside->placed || inside->visible_ns > now_ns;
}

/* Without memory for that it stays. */
static bool move_out(shaped_link *link) {
    shaped_endpoint *endpoint = endpoint_of(&link->base);
    known_frame *inside = link->inside;
    if (link->spares > 0)
        inside->copy = link->spare[--link->spares];
    else if (rpi_alloc_pages(endpoint->frame_bytes, "a frame on its way", &inside->copy) !=
             RP_OK)
        return false;
    memcpy(inside->copy, inside->frame, inside->bytes);
    inside->frame = inside->copy;
    link->inside = NULL;
    endpoint->kind->release(link->inner);
    return true;
}

/* Learn of what has come on a link, whether it is to be seen yet or not. */
static void learn(shaped_link *link, int64_t now_ns) {
    const rpi_transport *kind = endpoint_of(&link->base)->kind;
    while (link->fault.status == RP_OK) {
        const void *frame = NULL;
        size_t bytes = 0;
        if (link->inside && !(is_in_the_way(link, now_ns) && move_out(link))) return;
        rp_status status = kind->peek(link->inner, &frame, &bytes);
        if (status == RP_OK) status = unwrap(link, frame, bytes);
        if (status == RP_PENDING) return;
        if (status != RP_OK) rpi_fault_keep(&link->fault, status);
    }
}

/* The first of these that has no place on the way in yet; NULL: none. */
static known_frame *first_unplaced(known_frames *frames) {
    for (uint32_t i = 0; i < frames->count; i++)
        if (!frame_at(frames, i)->placed) return frame_at(frames, i);
    return NULL;
}

/* The frame of all links that arrived first and has no place on the way in yet; NULL: none. */
static known_frame *first_arrived(shaped_endpoint *endpoint, int64_t now_ns, int order) {
    known_frame *first = NULL;
    for (int peer = 0; peer < endpoint->base.world; peer++) {
        shaped_link *link = endpoint->links[peer];
        known_frame *known = link ? first_unplaced(&link->known[order]) : NULL;
        if (!known || rpi_nic_arrival(&endpoint->nic, known->start_ns) > now_ns) continue;
        if (!first || known->start_ns < first->start_ns) first = known;
    }
    return first;
}

static void place(shaped_endpoint *endpoint, known_frame *known, int order) {
    rpi_nic *nic = take_nic(endpoint);
    known->visible_ns = order == URGENT
                            ? rpi_nic_receive_urgent(nic, known->start_ns, known->bytes)
                            : rpi_nic_receive(nic, known->start_ns, known->bytes);
    give_nic(endpoint);
    known->placed = true;
}

/* Statuses of single links are found again by who asks for their frames. */
static void refresh(shaped_endpoint *endpoint, int64_t now_ns) {
    for (int peer = 0; peer < endpoint->base.world; peer++)
        if (endpoint->links[peer]) learn(endpoint->links[peer], now_ns);
    for (;;) {
        known_frame *other = first_arrived(endpoint, now_ns, OTHERS);
        known_frame *urgent = first_arrived(endpoint, now_ns, URGENT);
        if (!other && !urgent) return;
        bool is_urgent = !other || (urgent && urgent->start_ns <= other->start_ns);
        place(endpoint, is_urgent ? urgent : other, is_urgent ? URGENT : OTHERS);
    }
}

/* The first of these is to be seen. */
static bool is_visible(shaped_link *link, int order, int64_t now_ns) {
    known_frames *frames = &link->known[order];
    const known_frame *first = frame_at(frames, 0);
    return frames->count > 0 && first->placed && first->visible_ns <= now_ns &&
           first->behind <= link->released;
}

static rp_status shaped_peek(rpi_link *base, const void **out_frame, size_t *out_bytes) {
    shaped_link *link = (shaped_link *)base;
    int64_t now_ns = rpi_now_ns();
    refresh(endpoint_of(base), now_ns);
    for (int order = URGENT; order >= OTHERS && !link->seen; order--)
        if (is_visible(link, order, now_ns)) link->seen = &link->known[order];
    if (!link->seen) {
        bool none = !link->known[OTHERS].count && !link->known[URGENT].count;
        if (none) RP_TRY(rpi_fault_raise(&link->fault));
        return RP_PENDING;
    }
    *out_frame = frame_at(link->seen, 0)->frame;
    *out_bytes = frame_at(link->seen, 0)->bytes;
    return RP_OK;
}

static void shaped_release(rpi_link *base) {
    shaped_link *link = (shaped_link *)base;
    known_frames *frames = link->seen;
    if (!frames) return;
    known_frame *first = frame_at(frames, 0);
    rpi_link_count_received(base, first->bytes);
    if (first->copy) {
        link->spare[link->spares++] = first->copy;
        first->copy = NULL;
    } else {
        link->inside = NULL;
        endpoint_of(base)->kind->release(link->inner);
    }
    link->released += frames == &link->known[OTHERS];
    frames->first++;
    frames->count--;
    link->seen = NULL;
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

/* The model's next event on a link. What waits for others to be released is none. */
static int64_t next_event_ns(const shaped_endpoint *endpoint, shaped_link *link) {
    int64_t next_ns = RPI_NEVER_NS;
    for (int order = 0; order < ORDERS; order++) {
        known_frames *frames = &link->known[order];
        const known_frame *first = frame_at(frames, 0);
        if (!frames->count || frames == link->seen || first->behind > link->released) continue;
        next_ns =
            earlier(next_ns, first->placed ? first->visible_ns
                                           : rpi_nic_arrival(&endpoint->nic, first->start_ns));
    }
    if (link->starved)
        next_ns = earlier(next_ns, rpi_nic_takes_at(&endpoint->nic, &link->waiting));
    return next_ns;
}

static bool has_untold_fault(const shaped_link *link) {
    bool none = !link->known[OTHERS].count && !link->known[URGENT].count;
    return none && link->fault.status != RP_OK && !link->fault.told;
}

static bool shaped_arm(rpi_endpoint *base, int *out_fd, int64_t *wake_at_ns) {
    shaped_endpoint *endpoint = (shaped_endpoint *)base;
    bool news = endpoint->kind->arm(endpoint->inner, out_fd, wake_at_ns);
    int64_t now_ns = rpi_now_ns();
    for (int peer = 0; peer < base->world; peer++) {
        shaped_link *link = endpoint->links[peer];
        if (!link) continue;
        news |= has_untold_fault(link);
        *wake_at_ns = earlier(*wake_at_ns, next_event_ns(endpoint, link));
    }
    return news || *wake_at_ns <= now_ns;
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

static void shaped_forget(rpi_endpoint *base) {
    shaped_endpoint *endpoint = (shaped_endpoint *)base;
    endpoint->kind->forget(endpoint->inner);
}

const rpi_transport rpi_transport_shaped = {
    .name = "shaped",
    .summary = "wraps another transport to be as slow as a network (--link)",
    .checksum = true, /* as the network that it stands for would need */
    .reaches = shaped_reaches,
    .open = shaped_open,
    .address = shaped_address,
    .connect = shaped_connect,
    .call = shaped_call,
    .met = shaped_met,
    .lend = shaped_lend,
    .post = shaped_post,
    .peek = shaped_peek,
    .release = shaped_release,
    .progress = shaped_progress,
    .arm = shaped_arm,
    .disarm = shaped_disarm,
    .flushed = shaped_flushed,
    .delivered = shaped_delivered,
    .describe = shaped_describe,
    .close = shaped_close,
    .forget = shaped_forget,
};
