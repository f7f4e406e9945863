/* All-to-all in pairs: in round d each rank sends to the one d further on and receives from the
 * one d before, so that in every round each link carries one block each way. Parts are numbered
 * by distance (plan.h), since a rank knows only the blocks that it sends or receives. */
#include "plan/algorithms.h"
#include "plan/schedule_writer.h"

static rp_status build(const rpi_plan_request *request, rpi_schedule *out_schedule) {
    int world = request->world, rank = request->rank;
    rpi_writer writer = rpi_writer_start(request, 2 * world, out_schedule);
    rpi_write_copy(&writer, 0, RPI_SLOT_IN, RPI_SLOT_OUT);
    for (int distance = 1; distance < world; distance++) {
        rpi_writer_round(&writer, distance);
        int wire = rpi_write_encode(&writer, distance, RPI_SLOT_IN, RPI_ROLE_SENDER);
        rpi_write_send(&writer, distance, wire, rpi_wrap(rank, distance, world));
        int part = world + distance;
        int got = rpi_write_recv(&writer, part, rpi_wrap(rank, -distance, world));
        rpi_write_decode(&writer, part, got, RPI_SLOT_OUT);
    }
    return rpi_writer_finish(&writer);
}

const rpi_algorithm rpi_algorithm_pairwise = {
    .name = "pairwise",
    .summary = "in round d each rank sends to rank + d and receives from rank - d",
    .collective = RPI_ALL_TO_ALL,
    .quantisations = 1,
    .fits = rpi_fits_all,
    .build = build,
};
