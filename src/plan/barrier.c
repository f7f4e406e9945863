/* Barrier by dissemination: in round k every rank tells the one 2^k further on; after
 * ceil(log2 P) rounds each has heard, directly or not, from all. A token is sent only after the
 * token of the round before has come, since both use the slot TOKEN. */
#include "plan/algorithms.h"
#include "plan/outline.h"
#include "plan/schedule_writer.h"

static rp_status build(const rpi_plan_request *request, rpi_schedule *out_schedule) {
    int world = request->world, rank = request->rank;
    rpi_writer writer = rpi_writer_start(request, 1, out_schedule);
    for (int round = 0; 1 << round < world; round++) {
        rpi_writer_round(&writer, round);
        rpi_write_token_send(&writer, rpi_wrap(rank, 1 << round, world));
        rpi_write_token_recv(&writer, rpi_wrap(rank, -(1 << round), world));
    }
    return rpi_writer_finish(&writer);
}

static rpi_outline outline(const rpi_world_shape *s) {
    int rounds = rpi_log2_up(s->world);
    bool crosses = s->hosts > 1; /* some rank's tokens in every round */
    return (rpi_outline){.rounds_between = crosses ? rounds : 0,
                         .rounds_inside = crosses ? 0 : rounds,
                         .frames_between = crosses ? 2 * rounds : 0,
                         .frames_inside = crosses ? 0 : 2 * rounds,
                         .parts = 1};
}

const rpi_algorithm rpi_algorithm_dissemination = {
    .name = "dissemination",
    .summary = "ceil(log2 P) rounds of tokens at doubling distance",
    .collective = RPI_BARRIER,
    .fits = rpi_fits_all,
    .build = build,
    .outline = outline,
};
