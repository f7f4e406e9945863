/* All-gather round a ring: the second half of the ring all-reduce. */
#include "plan/algorithms.h"
#include "plan/circle.h"
#include "plan/outline.h"

static rp_status build(const rpi_plan_request *request, rpi_schedule *out_schedule) {
    rpi_writer writer = rpi_writer_start(request, request->world, out_schedule);
    int wire = rpi_write_encode(&writer, request->rank, RPI_SLOT_IN, RPI_ROLE_SENDER);
    rpi_circle_gather(&writer, wire, 0);
    return rpi_writer_finish(&writer);
}

static rpi_outline outline(const rpi_world_shape *s) {
    return rpi_outline_ring(s, s->world - 1);
}

const rpi_algorithm rpi_algorithm_ring_gather = {
    .name = "ring",
    .summary = "encodings travel to the next neighbour, P - 1 hops",
    .collective = RPI_ALL_GATHER,
    .quantisations = 1,
    .fits = rpi_fits_all,
    .build = build,
    .outline = outline,
};
