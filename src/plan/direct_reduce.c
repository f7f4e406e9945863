/* Reduce in one hop: the root gets everybody's vector and adds in rank order. One latency, but
 * all P - 1 vectors come in through the root's link. */
#include "plan/algorithms.h"
#include "plan/direct.h"
#include "plan/outline.h"

static rp_status build(const rpi_plan_request *request, rpi_schedule *out_schedule) {
    rpi_writer writer = rpi_writer_start(request, 1, out_schedule);
    if (request->world == 1) {
        rpi_write_copy(&writer, 0, RPI_SLOT_IN, RPI_SLOT_OUT);
    } else if (request->rank == request->root) {
        rpi_direct_sum(&writer, 0);
        rpi_write_result(&writer, 0);
    } else {
        int wire = rpi_write_encode(&writer, 0, RPI_SLOT_IN, RPI_ROLE_SENDER);
        rpi_write_send(&writer, 0, wire, request->root);
    }
    return rpi_writer_finish(&writer);
}

static rpi_outline outline(const rpi_world_shape *s) {
    double others = s->world - 1, away = s->world - s->widest;
    return (rpi_outline){.rounds_between = away > 0,
                         .rounds_inside = away <= 0,
                         .frames_between = away,
                         .frames_inside = others - away,
                         .host_bytes = away,
                         .inside_bytes = others - away,
                         .worked = s->world,
                         .parts = 1};
}

const rpi_algorithm rpi_algorithm_direct_reduce = {
    .name = "direct",
    .summary = "all send to the root, which adds in rank order: one hop, for short vectors",
    .collective = RPI_REDUCE,
    .quantisations = 1,
    .rank_order = true,
    .fits = rpi_fits_all,
    .build = build,
    .outline = outline,
};
