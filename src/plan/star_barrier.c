/* Barrier through one rank: everybody tells rank 0, which answers when all have. 2(P - 1)
 * tokens in all, and each rank but rank 0 waits once: for many more ranks than cores. Rank 0
 * answers only after the last token has come, since all use the slot TOKEN. */
#include "plan/algorithms.h"
#include "plan/outline.h"
#include "plan/schedule_writer.h"

static void write_centre(rpi_writer *writer, int world) {
    for (int peer = 1; peer < world; peer++) rpi_write_token_recv(writer, peer);
    rpi_writer_round(writer, 1);
    for (int peer = 1; peer < world; peer++) rpi_write_token_send(writer, peer);
}

static rp_status build(const rpi_plan_request *request, rpi_schedule *out_schedule) {
    rpi_writer writer = rpi_writer_start(request, 1, out_schedule);
    if (request->rank == 0) {
        write_centre(&writer, request->world);
    } else {
        rpi_write_token_send(&writer, 0);
        rpi_writer_round(&writer, 1);
        rpi_write_token_recv(&writer, 0);
    }
    return rpi_writer_finish(&writer);
}

static rpi_outline outline(const rpi_world_shape *s) {
    return rpi_outline_star(s);
}

const rpi_algorithm rpi_algorithm_star_barrier = {
    .name = "star",
    .summary = "all tell rank 0, which answers: for crowds",
    .collective = RPI_BARRIER,
    .for_crowds = true,
    .fits = rpi_fits_all,
    .build = build,
    .outline = outline,
};
