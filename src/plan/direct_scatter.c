/* Reduce-scatter in one hop: the first half of scatter-reduce-allgather. */
#include "plan/algorithms.h"
#include "plan/direct.h"
#include "plan/outline.h"

static rp_status build(const rpi_plan_request *request, rpi_schedule *out_schedule) {
    rpi_writer writer = rpi_writer_start(request, request->world, out_schedule);
    if (request->world == 1) {
        rpi_write_copy(&writer, 0, RPI_SLOT_IN, RPI_SLOT_OUT);
        return rpi_writer_finish(&writer);
    }
    rpi_direct_reduce(&writer, 0);
    rpi_write_result(&writer, request->rank);
    return rpi_writer_finish(&writer);
}

static rpi_outline outline(const rpi_world_shape *s) {
    double share = (s->world - 1.0) / s->world;
    return rpi_outline_all_pairs(s, 1, share);
}

const rpi_algorithm rpi_algorithm_direct_scatter = {
    .name = "direct",
    .summary = "each part straight to its owner, who adds in rank order",
    .collective = RPI_REDUCE_SCATTER,
    .quantisations = 1,
    .rank_order = true,
    .fits = rpi_fits_all,
    .build = build,
    .outline = outline,
};
