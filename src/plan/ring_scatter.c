/* Reduce-scatter round a ring: the first half of the ring all-reduce. */
#include "plan/algorithms.h"
#include "plan/circle.h"
#include "plan/outline.h"

static rp_status build(const rpi_plan_request *request, rpi_schedule *out_schedule) {
    rpi_writer writer = rpi_writer_start(request, request->world, out_schedule);
    if (request->world == 1) {
        rpi_write_copy(&writer, 0, RPI_SLOT_IN, RPI_SLOT_OUT);
        return rpi_writer_finish(&writer);
    }
    rpi_circle_reduce(&writer, 0);
    rpi_write_result(&writer, request->rank);
    return rpi_writer_finish(&writer);
}

static rpi_outline outline(const rpi_world_shape *s) {
    return rpi_outline_ring(s, s->world - 1);
}

const rpi_algorithm rpi_algorithm_ring_scatter = {
    .name = "ring",
    .summary = "partial sums travel to the next neighbour, P - 1 hops",
    .collective = RPI_REDUCE_SCATTER,
    .quantisations = -1,
    .fits = rpi_fits_all,
    .build = build,
    .outline = outline,
};
