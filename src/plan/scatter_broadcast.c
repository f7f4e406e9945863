/* Broadcast by scattering and gathering: the root sends part v - 1 to the rank at distance v
 * from it, and each of those passes its part on to all others. The root sends the vector once,
 * the others (P-2)/(P-1) of it: no rank sends more than S bytes. */
#include "plan/algorithms.h"
#include "plan/outline.h"
#include "plan/schedule_writer.h"

static void give(rpi_writer *writer) {
    const rpi_schedule *schedule = writer->schedule;
    for (int distance = 1; distance < schedule->world; distance++) {
        int part = distance - 1;
        int wire = rpi_write_encode(writer, part, RPI_SLOT_IN, RPI_ROLE_SENDER);
        rpi_write_send(writer, part, wire, rpi_wrap(schedule->root, distance, schedule->world));
    }
    for (int part = 0; part < schedule->parts; part++)
        rpi_write_copy(writer, part, RPI_SLOT_IN, RPI_SLOT_OUT);
}

/* Others are numbered by their distance from the root less one, as parts are. */
static void pass_on(rpi_writer *writer, int mine) {
    const rpi_schedule *schedule = writer->schedule;
    int others = schedule->world - 1, first = schedule->root + 1;
    int wire = rpi_write_recv(writer, mine, schedule->root);
    rpi_writer_round(writer, 1);
    for (int distance = 1; distance < others; distance++) {
        int peer = rpi_wrap(mine, distance, others);
        rpi_write_send(writer, mine, wire, (first + peer) % schedule->world);
    }
    rpi_write_decode(writer, mine, wire, RPI_SLOT_OUT);
    for (int distance = 1; distance < others; distance++) {
        int part = rpi_wrap(mine, -distance, others);
        int got = rpi_write_recv(writer, part, (first + part) % schedule->world);
        rpi_write_decode(writer, part, got, RPI_SLOT_OUT);
    }
}

static rp_status build(const rpi_plan_request *request, rpi_schedule *out_schedule) {
    int world = request->world;
    int distance = rpi_wrap(request->rank, -request->root, world);
    rpi_writer writer = rpi_writer_start(request, world > 1 ? world - 1 : 1, out_schedule);
    if (distance == 0)
        give(&writer);
    else
        pass_on(&writer, distance - 1);
    return rpi_writer_finish(&writer);
}

static rpi_outline outline(const rpi_world_shape *s) {
    rpi_outline it = rpi_outline_all_pairs(s, 1, 1);
    it.rounds_between *= 2;
    it.rounds_inside *= 2;
    it.worked = 1;
    it.parts = s->world > 1 ? s->world - 1 : 1;
    return it;
}

const rpi_algorithm rpi_algorithm_scatter_broadcast = {
    .name = "scatter",
    .summary = "scatter and all-gather: every byte leaves the root once, for long vectors",
    .collective = RPI_BROADCAST,
    .quantisations = 1,
    .fits = rpi_fits_all,
    .build = build,
    .outline = outline,
};
