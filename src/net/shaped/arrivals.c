#include "net/shaped/arrivals.h"

#include "base/clock.h"
#include "base/memory.h"
#include "net/bytes/frame.h"

#include <string.h>

static uint32_t place_of(const rpi_arrival_queue *queue, uint32_t index) {
    return (queue->first + index) % RPI_ARRIVALS;
}

static rpi_arrival *first_of(rpi_arrival_queue *queue) {
    return &queue->at[place_of(queue, 0)];
}

void rpi_arrivals_free(rpi_arrivals *arrivals) {
    for (int order = 0; order < RPI_ARRIVALS_ORDERS; order++) {
        const rpi_arrival_queue *queue = &arrivals->queues[order];
        for (uint32_t i = 0; i < queue->count; i++)
            rpi_free_pages(queue->at[place_of(queue, i)].copy, arrivals->frame_bytes);
    }
    while (arrivals->spares > 0)
        rpi_free_pages(arrivals->spare[--arrivals->spares], arrivals->frame_bytes);
}

bool rpi_arrivals_are_none(const rpi_arrivals *arrivals) {
    return !arrivals->queues[RPI_ARRIVALS_OTHERS].count &&
           !arrivals->queues[RPI_ARRIVALS_URGENT].count;
}

/* ---- what has come ---- */

static rp_status unwrap(rpi_arrivals *arrivals, const void *frame, size_t bytes) {
    rpi_frame_header wrap;
    RP_TRY(rpi_frame_open(frame, bytes, false, &wrap));
    if (!rpi_frame_may_come(&wrap, RPI_FRAME_AROUND) || wrap.sequence > INT64_MAX / 2 ||
        wrap.part < RPI_TRAFFIC_PLAIN || wrap.part > RPI_TRAFFIC_URGENT)
        return RP_FAIL(CORRUPT, "a frame from rank %d without the time it was sent",
                       arrivals->peer);
    bool urgent = wrap.part == RPI_TRAFFIC_URGENT;
    rpi_arrival_queue *queue =
        &arrivals->queues[urgent ? RPI_ARRIVALS_URGENT : RPI_ARRIVALS_OTHERS];
    arrivals->inside = &queue->at[place_of(queue, queue->count++)];
    *arrivals->inside =
        (rpi_arrival){.frame = (const unsigned char *)frame + RPI_FRAME_HEADER_BYTES,
                      .bytes = wrap.bytes,
                      .start_ns = (int64_t)wrap.sequence,
                      .behind = urgent ? wrap.count : 0,
                      .may_be_copied = wrap.part != RPI_TRAFFIC_PLAIN ||
                                       wrap.bytes <= RPI_ARRIVALS_SHORT_BYTES};
    return RP_OK;
}

/* For one more than the one in the wrapped transport, which is always there while these are
 * full, so that the transport is not ready. */
static bool has_room(const rpi_arrivals *arrivals) {
    return arrivals->queues[RPI_ARRIVALS_OTHERS].count < RPI_ARRIVALS &&
           arrivals->queues[RPI_ARRIVALS_URGENT].count < RPI_ARRIVALS;
}

/* Nobody looks at it, and nobody may yet. */
static bool is_in_the_way(const rpi_arrivals *arrivals, int64_t now_ns) {
    const rpi_arrival *inside = arrivals->inside;
    if (!inside->may_be_copied || !has_room(arrivals)) return false;
    if (arrivals->seen && first_of(arrivals->seen) == inside) return false;
    return !inside->placed || inside->visible_ns > now_ns;
}

/* Without memory for a copy it stays there. */
static bool move_out(rpi_arrivals *arrivals, rpi_link *inner) {
    rpi_arrival *inside = arrivals->inside;
    if (arrivals->spares > 0)
        inside->copy = arrivals->spare[--arrivals->spares];
    else if (rpi_alloc_pages(arrivals->frame_bytes, "a frame on its way", &inside->copy) !=
             RP_OK)
        return false;
    memcpy(inside->copy, inside->frame, inside->bytes);
    inside->frame = inside->copy;
    arrivals->inside = NULL;
    inner->endpoint->transport->release(inner);
    return true;
}

void rpi_arrivals_learn(rpi_arrivals *arrivals, rpi_link *inner, int64_t now_ns) {
    while (arrivals->sticky.status == RP_OK) {
        const void *frame = NULL;
        size_t bytes = 0;
        if (arrivals->inside && !(is_in_the_way(arrivals, now_ns) && move_out(arrivals, inner)))
            return;
        rp_status status = inner->endpoint->transport->peek(inner, &frame, &bytes);
        if (status == RP_OK) status = unwrap(arrivals, frame, bytes);
        if (status == RP_PENDING) return;
        if (status != RP_OK) rpi_sticky_error_keep(&arrivals->sticky, status);
    }
}

rpi_arrival *rpi_arrivals_unplaced(rpi_arrivals *arrivals, int order) {
    rpi_arrival_queue *queue = &arrivals->queues[order];
    for (uint32_t i = 0; i < queue->count; i++)
        if (!queue->at[place_of(queue, i)].placed) return &queue->at[place_of(queue, i)];
    return NULL;
}

/* ---- what is to be seen ---- */

static bool is_visible(const rpi_arrivals *arrivals, int order, int64_t now_ns) {
    const rpi_arrival_queue *queue = &arrivals->queues[order];
    const rpi_arrival *first = &queue->at[place_of(queue, 0)];
    return queue->count > 0 && first->placed && first->visible_ns <= now_ns &&
           first->behind <= arrivals->released;
}

const rpi_arrival *rpi_arrivals_look(rpi_arrivals *arrivals, int64_t now_ns) {
    for (int order = RPI_ARRIVALS_ORDERS - 1; order >= 0 && !arrivals->seen; order--)
        if (is_visible(arrivals, order, now_ns)) arrivals->seen = &arrivals->queues[order];
    return arrivals->seen ? first_of(arrivals->seen) : NULL;
}

size_t rpi_arrivals_release(rpi_arrivals *arrivals, rpi_link *inner) {
    rpi_arrival_queue *queue = arrivals->seen;
    if (!queue) return 0;
    rpi_arrival *first = first_of(queue);
    if (first->copy) {
        arrivals->spare[arrivals->spares++] = first->copy;
        first->copy = NULL;
    } else {
        arrivals->inside = NULL;
        inner->endpoint->transport->release(inner);
    }
    arrivals->released += queue == &arrivals->queues[RPI_ARRIVALS_OTHERS];
    arrivals->seen = NULL;
    queue->first++;
    queue->count--;
    return first->bytes;
}

int64_t rpi_arrivals_next_ns(const rpi_arrivals *arrivals, const rpi_nic *nic) {
    int64_t next_ns = RPI_NEVER_NS;
    for (int order = 0; order < RPI_ARRIVALS_ORDERS; order++) {
        const rpi_arrival_queue *queue = &arrivals->queues[order];
        const rpi_arrival *first = &queue->at[place_of(queue, 0)];
        if (!queue->count || queue == arrivals->seen || first->behind > arrivals->released)
            continue;
        int64_t own_ns =
            first->placed ? first->visible_ns : rpi_nic_arrival(nic, first->start_ns);
        if (own_ns < next_ns) next_ns = own_ns;
    }
    return next_ns;
}
