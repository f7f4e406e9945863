/* Reduce up a binomial tree: in round k every rank whose distance from the root is an odd
 * multiple of 2^k gives the sum of its subtree to the one 2^k before. ceil(log2 P) latencies,
 * and nobody handles more than that many frames. Not in rank order. */
#include "plan/algorithms.h"
#include "plan/outline.h"
#include "plan/schedule_writer.h"

static rp_status build(const rpi_plan_request *request, rpi_schedule *out_schedule) {
    int world = request->world, distance = rpi_wrap(request->rank, -request->root, world);
    rpi_writer writer = rpi_writer_start(request, 1, out_schedule);
    bool leaf = true;
    int round = 0;
    for (; 1 << round < world && !(distance >> round & 1); round++) {
        int child = distance + (1 << round);
        if (child >= world) continue;
        rpi_writer_round(&writer, round);
        if (leaf) rpi_write_copy(&writer, 0, RPI_SLOT_IN, RPI_SLOT_SUM);
        leaf = false;
        int wire = rpi_write_recv(&writer, 0, rpi_wrap(request->root, child, world));
        rpi_write_add(&writer, 0, wire, RPI_SLOT_SUM);
    }
    rpi_writer_round(&writer, round);
    if (distance > 0) {
        int wire =
            rpi_write_encode(&writer, 0, leaf ? RPI_SLOT_IN : RPI_SLOT_SUM, RPI_ROLE_SENDER);
        int parent = rpi_wrap(request->root, distance - (1 << round), world);
        rpi_write_send(&writer, 0, wire, parent);
    } else if (world > 1) {
        rpi_write_result(&writer, 0);
    } else {
        rpi_write_copy(&writer, 0, RPI_SLOT_IN, RPI_SLOT_OUT);
    }
    return rpi_writer_finish(&writer);
}

static rpi_outline outline(const rpi_world_shape *s) {
    int between = rpi_log2_up(s->hosts), inside = rpi_log2_up(s->world) - between;
    return (rpi_outline){.rounds_between = between,
                         .rounds_inside = inside > 0 ? inside : 0,
                         .frames_between = between,
                         .frames_inside = inside > 0 ? inside : 0,
                         .host_bytes = between,
                         .inside_bytes = inside > 0 ? inside : 0,
                         .worked = rpi_log2_up(s->world) + 1.0,
                         .parts = 1};
}

const rpi_algorithm rpi_algorithm_tree_reduce = {
    .name = "tree",
    .summary = "partial sums up a binomial tree: the fewest rounds; not in rank order",
    .collective = RPI_REDUCE,
    .quantisations = -1,
    .fits = rpi_fits_all,
    .build = build,
    .outline = outline,
};
