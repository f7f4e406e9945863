#include "train/parallel/border_costs.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/core/communicator.h"

#include <math.h>

enum { TAG = 1 << 20, SHORT = 8, REPEATS = 5, MOST_BYTES = 8 << 20 };

/* The time of one way: half of the quickest round trip, as the rank that begins measures it. */
static rp_status bounce(rp_comm *comm, int low, void *data, size_t bytes, double *out_s) {
    bool begins = rp_comm_rank(comm) == low;
    int peer = begins ? low + 1 : low;
    double least = INFINITY;
    for (int i = 0; i < REPEATS; i++) {
        int64_t start = rpi_now_ns();
        if (begins) RP_TRY(rp_send(comm, data, bytes, RP_U8, peer, TAG));
        RP_TRY(rp_recv(comm, data, bytes, RP_U8, peer, TAG));
        if (!begins) RP_TRY(rp_send(comm, data, bytes, RP_U8, peer, TAG));
        if (i > 0) least = fmin(least, rpi_seconds(rpi_now_ns() - start) / 2);
    }
    *out_s = least;
    return RP_OK;
}

typedef struct border {
    double latency_s, second_per_byte;
} border;

static rp_status measure(rp_comm *comm, int low, void *data, size_t bytes, border *out) {
    double short_s = 0, long_s = 0;
    RP_TRY(bounce(comm, low, data, SHORT, &short_s));
    RP_TRY(bounce(comm, low, data, bytes, &long_s));
    if (rp_comm_rank(comm) != low) return RP_OK;
    *out = (border){short_s, fmax(long_s - short_s, 0) / (double)bytes};
    return RP_OK;
}

/* Measures one border after the other, because borders may share an interface. */
static rp_status measure_all(rp_comm *comm, size_t bytes, border *borders) {
    void *data = NULL;
    int rank = rp_comm_rank(comm);
    RP_TRY(rpi_alloc(bytes, "a message", &data));
    rp_status status = RP_OK;
    for (int low = 0; low + 1 < rp_comm_world(comm) && status == RP_OK; low++)
        if (rank == low || rank == low + 1)
            status = measure(comm, low, data, bytes, &borders[low]);
    rpi_free(data);
    return status;
}

static void take_slowest(const border *b, double *rate, double *latency_s) {
    double second_per_byte = *rate > 0 ? 1 / *rate : 0;
    *latency_s = fmax(*latency_s, b->latency_s);
    if (b->second_per_byte > second_per_byte) *rate = 1 / b->second_per_byte;
}

static void take(const rp_comm *comm, const border *borders, rpi_pipeline_model *m) {
    m->host_of = comm->host_of;
    m->bytes_per_s = m->inside_bytes_per_s = m->latency_s = m->inside_latency_s = 0;
    for (int low = 0; low + 1 < comm->world; low++) {
        bool inside = comm->host_of && comm->host_of[low] == comm->host_of[low + 1];
        take_slowest(&borders[low], inside ? &m->inside_bytes_per_s : &m->bytes_per_s,
                     inside ? &m->inside_latency_s : &m->latency_s);
    }
}

static rp_status measure_and_tell(rp_comm *comm, size_t bytes, bool measures, border *borders,
                                  rpi_pipeline_model *out) {
    int count = rp_comm_world(comm) - 1;
    size_t probe = bytes < 2 * SHORT ? 2 * SHORT : bytes < MOST_BYTES ? bytes : MOST_BYTES;
    if (measures) RP_TRY(measure_all(comm, probe, borders));
    rp_segment sums = {.data = borders, .count = 2 * (size_t)count, .dtype = RP_F64};
    RP_TRY(rp_all_reduce(comm, &sums, 1, NULL));
    out->border_bytes = (double)bytes;
    take(comm, borders, out);
    return RP_OK;
}

rp_status rpi_border_costs_measure(rp_comm *comm, size_t bytes, bool measures,
                                   rpi_pipeline_model *out_model) {
    border *borders = NULL;
    RP_TRY(rpi_alloc_array((size_t)rp_comm_world(comm), sizeof *borders, "borders", &borders));
    rp_status status = measure_and_tell(comm, bytes, measures, borders, out_model);
    rpi_free(borders);
    return status;
}
