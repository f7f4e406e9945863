#include "net/shaped/link_shape.h"

#include <math.h>

enum { BACKLOG_BYTES_MIN = 256 * 1024 };

/* A thread that sleeps wakes tens of microseconds late, so a faster NIC needs more queued
 * frames. */
static const double BACKLOG_S = 1e-3;

void rpi_nic_init(rpi_nic *nic, const rpi_link_shape *shape, size_t frame_bytes) {
    size_t backlog = (size_t)(shape->bytes_per_s * BACKLOG_S);
    if (backlog < BACKLOG_BYTES_MIN) backlog = BACKLOG_BYTES_MIN;
    if (backlog < frame_bytes) backlog = frame_bytes;
    *nic = (rpi_nic){.shape = *shape, .backlog_bytes = backlog};
}

static double duration_ns(const rpi_nic *nic, size_t bytes) {
    return nic->shape.bytes_per_s > 0 ? (double)bytes / nic->shape.bytes_per_s * 1e9 : 0;
}

/* Occupy a way for `bytes` from `from_ns` on, or from when it is free. */
static int64_t occupy(const rpi_nic *nic, rpi_nic_way *way, int64_t from_ns, size_t bytes) {
    if (way->free_ns < from_ns) *way = (rpi_nic_way){.free_ns = from_ns, .urgent_ns = from_ns};
    int64_t start_ns = way->free_ns;
    double exact_ns = duration_ns(nic, bytes) + way->fraction_ns;
    double whole_ns = floor(exact_ns);
    way->free_ns += (int64_t)whole_ns;
    way->fraction_ns = exact_ns - whole_ns;
    return start_ns;
}

/* The same for urgent frames: they follow other urgent ones, and delay all else by their time.
 */
static int64_t occupy_urgent(const rpi_nic *nic, rpi_nic_way *way, int64_t from_ns,
                             size_t bytes) {
    int64_t start_ns = way->urgent_ns > from_ns ? way->urgent_ns : from_ns;
    int64_t before_ns = way->free_ns > from_ns ? way->free_ns : from_ns;
    occupy(nic, way, from_ns, bytes);
    way->urgent_ns = start_ns + (way->free_ns - before_ns);
    return start_ns;
}

int64_t rpi_nic_takes_at(const rpi_nic *nic, const rpi_nic_queue *queue) {
    int64_t at_ns = 0;
    size_t bytes = queue->bytes;
    for (uint32_t i = 0; i < queue->count; i++) {
        uint32_t oldest = (queue->first + i) % RPI_NIC_QUEUE;
        if (bytes <= nic->backlog_bytes && queue->count - i < RPI_NIC_QUEUE) break;
        at_ns = queue->frames[oldest].left_ns;
        bytes -= queue->frames[oldest].bytes;
    }
    return at_ns;
}

static void drop_oldest(rpi_nic_queue *queue) {
    queue->bytes -= queue->frames[queue->first % RPI_NIC_QUEUE].bytes;
    queue->first++;
    queue->count--;
}

int64_t rpi_nic_send(rpi_nic *nic, rpi_nic_queue *queue, int64_t now_ns, size_t bytes) {
    while (queue->count == RPI_NIC_QUEUE ||
           (queue->count > 0 && queue->frames[queue->first % RPI_NIC_QUEUE].left_ns <= now_ns))
        drop_oldest(queue);
    int64_t start_ns = occupy(nic, &nic->out, now_ns, bytes);
    uint32_t newest = (queue->first + queue->count++) % RPI_NIC_QUEUE;
    queue->frames[newest].left_ns = nic->out.free_ns;
    queue->frames[newest].bytes = bytes;
    queue->bytes += bytes;
    return start_ns;
}

/* Until the piece that is being sent has left; the last piece of a queue may be shorter. */
static int64_t rest_of_piece(const rpi_nic *nic, int64_t now_ns) {
    int64_t piece_ns = (int64_t)duration_ns(nic, RPI_NIC_PIECE_BYTES);
    int64_t queued_ns = nic->out.free_ns - now_ns;
    return queued_ns > 0 && piece_ns > 0 ? queued_ns % piece_ns : 0;
}

int64_t rpi_nic_send_urgent(rpi_nic *nic, int64_t now_ns, size_t bytes) {
    return occupy_urgent(nic, &nic->out, now_ns + rest_of_piece(nic, now_ns), bytes);
}

uint32_t rpi_nic_waiting(const rpi_nic_queue *queue, int64_t now_ns) {
    uint32_t left = 0;
    while (left < queue->count &&
           queue->frames[(queue->first + left) % RPI_NIC_QUEUE].left_ns <= now_ns)
        left++;
    return queue->count - left;
}

int64_t rpi_nic_arrival(const rpi_nic *nic, int64_t start_ns) {
    return start_ns + (int64_t)(nic->shape.latency_s * 1e9);
}

int64_t rpi_nic_receive(rpi_nic *nic, int64_t start_ns, size_t bytes) {
    occupy(nic, &nic->in, rpi_nic_arrival(nic, start_ns), bytes);
    return nic->in.free_ns;
}

/* Frames arrive in pieces, too, and an urgent one enters between them as it left between them.
 */
int64_t rpi_nic_receive_urgent(rpi_nic *nic, int64_t start_ns, size_t bytes) {
    occupy_urgent(nic, &nic->in, rpi_nic_arrival(nic, start_ns), bytes);
    return nic->in.urgent_ns;
}
