/* All-reduce through one rank: everybody sends its vector to rank 0, which adds in rank order
 * and sends the sum to all. 2(P - 1) frames in all, and each rank but rank 0 waits once: for
 * short vectors of many more ranks than cores, where every wait is a turn of all others.
 */
#include "plan/algorithms.h"
#include "plan/direct.h"
#include "plan/outline.h"

static void write_centre(rpi_writer *writer, int world) {
    rpi_direct_sum(writer, 0);
    rpi_writer_round(writer, 1);
    rpi_write_mean(writer, 0);
    int sum = rpi_write_encode(writer, 0, RPI_SLOT_SUM, RPI_ROLE_OWNER);
    for (int peer = 1; peer < world; peer++) rpi_write_send(writer, 0, sum, peer);
    rpi_write_decode(writer, 0, sum, RPI_SLOT_OUT);
}

static rp_status build(const rpi_plan_request *request, rpi_schedule *out_schedule) {
    rpi_writer writer = rpi_writer_start(request, 1, out_schedule);
    if (request->world == 1) {
        rpi_write_copy(&writer, 0, RPI_SLOT_IN, RPI_SLOT_OUT);
    } else if (request->rank == 0) {
        write_centre(&writer, request->world);
    } else {
        int wire = rpi_write_encode(&writer, 0, RPI_SLOT_IN, RPI_ROLE_SENDER);
        rpi_write_send(&writer, 0, wire, 0);
        rpi_writer_round(&writer, 1);
        rpi_write_decode(&writer, 0, rpi_write_recv(&writer, 0, 0), RPI_SLOT_OUT);
    }
    return rpi_writer_finish(&writer);
}

static rpi_outline outline(const rpi_world_shape *s) {
    rpi_outline it = rpi_outline_star(s);
    double others = s->world - 1, away = s->world - s->widest;
    it.host_bytes = away;
    it.inside_bytes = others - away;
    it.worked = 2.0 * s->world + 1; /* sending copies, too */
    return it;
}

const rpi_algorithm rpi_algorithm_star = {
    .name = "star",
    .summary = "all to rank 0, which adds in rank order and answers: for crowds; exact",
    .collective = RPI_ALL_REDUCE,
    .exact = true,
    .rank_order = true,
    .for_crowds = true,
    .fits = rpi_fits_all,
    .build = build,
    .outline = outline,
};
