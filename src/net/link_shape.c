#include "net/link_shape.h"

#include <math.h>

enum { BACKLOG_BYTES_MIN = 256 * 1024 };

/* A sleeper wakes up tens of microseconds late: a faster card needs more to do meanwhile. */
static const double BACKLOG_S = 1e-3;

void rpi_card_init(rpi_card *card, const rpi_link_shape *shape, size_t frame_bytes) {
    size_t backlog = (size_t)(shape->bytes_per_s * BACKLOG_S);
    if (backlog < BACKLOG_BYTES_MIN) backlog = BACKLOG_BYTES_MIN;
    if (backlog < frame_bytes) backlog = frame_bytes;
    *card = (rpi_card){.shape = *shape, .backlog_bytes = backlog};
}

static double duration_ns(const rpi_card *card, size_t bytes) {
    return card->shape.bytes_per_s > 0 ? (double)bytes / card->shape.bytes_per_s * 1e9 : 0;
}

/* Occupy a way for `bytes` from `from_ns` on, or from when it is free. */
static int64_t occupy(const rpi_card *card, rpi_card_way *way, int64_t from_ns, size_t bytes) {
    if (way->free_ns < from_ns) *way = (rpi_card_way){.free_ns = from_ns};
    int64_t start_ns = way->free_ns;
    double exact_ns = duration_ns(card, bytes) + way->fraction_ns;
    double whole_ns = floor(exact_ns);
    way->free_ns += (int64_t)whole_ns;
    way->fraction_ns = exact_ns - whole_ns;
    return start_ns;
}

int64_t rpi_card_takes_at(const rpi_card *card, const rpi_card_queue *queue) {
    int64_t at_ns = 0;
    size_t bytes = queue->bytes;
    for (uint32_t i = 0; i < queue->count; i++) {
        uint32_t oldest = (queue->first + i) % RPI_CARD_QUEUE;
        if (bytes <= card->backlog_bytes && queue->count - i < RPI_CARD_QUEUE) break;
        at_ns = queue->frames[oldest].left_ns;
        bytes -= queue->frames[oldest].bytes;
    }
    return at_ns;
}

static void forget_oldest(rpi_card_queue *queue) {
    queue->bytes -= queue->frames[queue->first % RPI_CARD_QUEUE].bytes;
    queue->first++;
    queue->count--;
}

int64_t rpi_card_send(rpi_card *card, rpi_card_queue *queue, int64_t now_ns, size_t bytes) {
    while (queue->count == RPI_CARD_QUEUE ||
           (queue->count > 0 && queue->frames[queue->first % RPI_CARD_QUEUE].left_ns <= now_ns))
        forget_oldest(queue);
    int64_t start_ns = occupy(card, &card->out, now_ns, bytes);
    uint32_t newest = (queue->first + queue->count++) % RPI_CARD_QUEUE;
    queue->frames[newest].left_ns = card->out.free_ns;
    queue->frames[newest].bytes = bytes;
    queue->bytes += bytes;
    return start_ns;
}

int64_t rpi_card_arrival(const rpi_card *card, int64_t start_ns) {
    return start_ns + (int64_t)(card->shape.latency_s * 1e9);
}

int64_t rpi_card_receive(rpi_card *card, int64_t start_ns, size_t bytes) {
    occupy(card, &card->in, rpi_card_arrival(card, start_ns), bytes);
    return card->in.free_ns;
}
