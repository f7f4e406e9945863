/* All-reduce in one hop: everybody sends its vector to all others, and all add in rank order,
 * which gives the same bits everywhere. For tiny vectors of small worlds: one latency, P - 1
 * frames. */
#include "plan/algorithms.h"
#include "plan/direct.h"
#include "plan/outline.h"

static rp_status build(const rpi_plan_request *request, rpi_schedule *out_schedule) {
    int world = request->world, rank = request->rank;
    rpi_writer writer = rpi_writer_start(request, 1, out_schedule);
    if (world == 1) {
        rpi_write_copy(&writer, 0, RPI_SLOT_IN, RPI_SLOT_OUT);
        return rpi_writer_finish(&writer);
    }
    int wire = rpi_write_encode(&writer, 0, RPI_SLOT_IN, RPI_ROLE_SENDER);
    for (int distance = 1; distance < world; distance++)
        rpi_write_send(&writer, 0, wire, rpi_wrap(rank, distance, world));
    rpi_direct_sum(&writer, 0);
    rpi_write_result(&writer, 0);
    return rpi_writer_finish(&writer);
}

static rpi_outline outline(const rpi_world_shape *s) {
    rpi_outline it = rpi_outline_all_pairs(s, 1, s->world - 1);
    it.worked = 2.0 * s->world - 1; /* sent to all others, added to theirs */
    it.parts = 1;
    return it;
}

const rpi_algorithm rpi_algorithm_oneshot = {
    .name = "oneshot",
    .summary = "everybody's vector to everybody, who add in rank order: for tiny ones; exact",
    .collective = RPI_ALL_REDUCE,
    .exact = true,
    .rank_order = true,
    .fits = rpi_fits_all,
    .build = build,
    .outline = outline,
};
