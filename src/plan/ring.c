/* All-reduce round a ring: reduce-scatter, then all-gather, P - 1 hops each. Partial sums are
 * encoded anew at every hop; the finished sum is encoded once by its owner, travels as it is
 * and is decoded by its owner too, so replicas are bit-identical. 2S(P-1)/P bytes a rank. */
#include "plan/algorithms.h"
#include "plan/circle.h"
#include "plan/outline.h"

static rp_status build(const rpi_plan_request *request, rpi_schedule *out_schedule) {
    int world = request->world, rank = request->rank;
    rpi_writer writer = rpi_writer_start(request, world, out_schedule);
    if (world == 1) {
        rpi_write_copy(&writer, 0, RPI_SLOT_IN, RPI_SLOT_OUT);
        return rpi_writer_finish(&writer);
    }
    rpi_circle_reduce(&writer, 0);
    rpi_writer_round(&writer, world - 1);
    rpi_write_mean(&writer, rank);
    int sum = rpi_write_encode(&writer, rank, RPI_SLOT_SUM, RPI_ROLE_OWNER);
    rpi_circle_gather(&writer, sum, world - 1);
    return rpi_writer_finish(&writer);
}

static rpi_outline outline(const rpi_world_shape *s) {
    return rpi_outline_ring(s, 2.0 * (s->world - 1));
}

const rpi_algorithm rpi_algorithm_ring = {
    .name = "ring",
    .summary = "neighbours only: P - 1 hops to reduce, P - 1 to gather",
    .collective = RPI_ALL_REDUCE,
    .quantisations = -1,
    .fits = rpi_fits_all,
    .build = build,
    .outline = outline,
};
