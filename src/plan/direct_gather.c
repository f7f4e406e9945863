/* All-gather in one hop: the second half of scatter-reduce-allgather. */
#include "plan/algorithms.h"
#include "plan/direct.h"
#include "plan/outline.h"

static rp_status build(const rpi_plan_request *request, rpi_schedule *out_schedule) {
    rpi_writer writer = rpi_writer_start(request, request->world, out_schedule);
    int wire = rpi_write_encode(&writer, request->rank, RPI_SLOT_IN, RPI_ROLE_SENDER);
    rpi_direct_gather(&writer, wire, 0);
    return rpi_writer_finish(&writer);
}

static rpi_outline outline(const rpi_world_shape *s) {
    double share = (s->world - 1.0) / s->world;
    return rpi_outline_all_pairs(s, 1, share);
}

const rpi_algorithm rpi_algorithm_direct_gather = {
    .name = "direct",
    .summary = "each rank sends its part to every other",
    .collective = RPI_ALL_GATHER,
    .quantisations = 1,
    .fits = rpi_fits_all,
    .build = build,
    .outline = outline,
};
