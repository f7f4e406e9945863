/* Reduce by scattering and gathering: the rank at distance v from the root owns part v - 1,
 * adds everybody's in rank order and sends the finished sum to the root. The root owns nothing,
 * so that its link carries the vector once each way, as every other's does. */
#include "plan/algorithms.h"
#include "plan/direct.h"
#include "plan/outline.h"

/* Owners are numbered as their parts are, by their distance from the root less one. */
static int owner_of(const rpi_schedule *schedule, int part) {
    return rpi_wrap(schedule->root, part + 1, schedule->world);
}

static void contribute(rpi_writer *writer, int part) {
    int wire = rpi_write_encode(writer, part, RPI_SLOT_IN, RPI_ROLE_SENDER);
    rpi_write_send(writer, part, wire, owner_of(writer->schedule, part));
}

static void write_root(rpi_writer *writer) {
    const rpi_schedule *schedule = writer->schedule;
    for (int part = 0; part < schedule->parts; part++) contribute(writer, part);
    rpi_writer_round(writer, 1);
    for (int part = 0; part < schedule->parts; part++) {
        int wire = rpi_write_recv(writer, part, owner_of(schedule, part));
        rpi_write_decode(writer, part, wire, RPI_SLOT_OUT);
    }
}

static void write_owner(rpi_writer *writer, int mine) {
    const rpi_schedule *schedule = writer->schedule;
    for (int distance = 1; distance < schedule->parts; distance++)
        contribute(writer, rpi_wrap(mine, distance, schedule->parts));
    rpi_direct_sum(writer, mine);
    rpi_writer_round(writer, 1);
    rpi_write_mean(writer, mine);
    int wire = rpi_write_encode(writer, mine, RPI_SLOT_SUM, RPI_ROLE_OWNER);
    rpi_write_send(writer, mine, wire, schedule->root);
}

static rp_status build(const rpi_plan_request *request, rpi_schedule *out_schedule) {
    int world = request->world;
    int distance = rpi_wrap(request->rank, -request->root, world);
    rpi_writer writer = rpi_writer_start(request, world > 1 ? world - 1 : 1, out_schedule);
    if (world == 1)
        rpi_write_copy(&writer, 0, RPI_SLOT_IN, RPI_SLOT_OUT);
    else if (distance == 0)
        write_root(&writer);
    else
        write_owner(&writer, distance - 1);
    return rpi_writer_finish(&writer);
}

static rpi_outline outline(const rpi_world_shape *s) {
    rpi_outline it = rpi_outline_all_pairs(s, 1, 1);
    it.rounds_between *= 2;
    it.rounds_inside *= 2;
    it.worked = 3;
    it.parts = s->world > 1 ? s->world - 1 : 1;
    return it;
}

const rpi_algorithm rpi_algorithm_scatter_reduce = {
    .name = "scatter",
    .summary = "reduce-scatter among the others, sums to the root: for long vectors",
    .collective = RPI_REDUCE,
    .quantisations = 2,
    .rank_order = true,
    .fits = rpi_fits_all,
    .build = build,
    .outline = outline,
};
