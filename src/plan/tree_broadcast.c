/* Broadcast down a binomial tree rooted at the root: ceil(log2 P) rounds. In round k every rank
 * whose distance from the root is below 2^k sends to the one 2^k further on. */
#include "plan/algorithms.h"
#include "plan/outline.h"
#include "plan/schedule_writer.h"

/* The round in which a rank at this distance is reached: the place of its highest bit. */
static int reached_in(int distance) {
    int round = 0;
    while (distance >> (round + 1)) round++;
    return round;
}

static rp_status build(const rpi_plan_request *request, rpi_schedule *out_schedule) {
    int world = request->world, root = request->root;
    int distance = rpi_wrap(request->rank, -root, world);
    int round = 0, wire = RPI_SLOT_ENCODED;
    rpi_writer writer = rpi_writer_start(request, 1, out_schedule);
    if (distance > 0) {
        round = reached_in(distance);
        rpi_writer_round(&writer, round);
        int parent = rpi_wrap(root, distance - (1 << round), world);
        wire = rpi_write_recv(&writer, 0, parent);
        round++;
    } else if (world > 1) {
        wire = rpi_write_encode(&writer, 0, RPI_SLOT_IN, RPI_ROLE_SENDER);
    }
    for (; distance + (1 << round) < world; round++) {
        rpi_writer_round(&writer, round);
        rpi_write_send(&writer, 0, wire, rpi_wrap(root, distance + (1 << round), world));
    }
    if (distance > 0)
        rpi_write_decode(&writer, 0, wire, RPI_SLOT_OUT);
    else
        rpi_write_copy(&writer, 0, RPI_SLOT_IN, RPI_SLOT_OUT);
    return rpi_writer_finish(&writer);
}

static rpi_outline outline(const rpi_world_shape *s) {
    int between = rpi_log2_up(s->hosts), inside = rpi_log2_up(s->world) - between;
    return (rpi_outline){.rounds_between = between,
                         .rounds_inside = inside > 0 ? inside : 0,
                         .frames_between = between,
                         .frames_inside = inside > 0 ? inside : 0,
                         .host_bytes = (double)s->widest * between,
                         .inside_bytes = inside > 0 ? inside : 0,
                         .worked = 1,
                         .parts = 1};
}

const rpi_algorithm rpi_algorithm_tree_broadcast = {
    .name = "tree",
    .summary = "binomial tree: the fewest rounds, for short vectors",
    .collective = RPI_BROADCAST,
    .quantisations = 1,
    .fits = rpi_fits_all,
    .build = build,
    .outline = outline,
};
