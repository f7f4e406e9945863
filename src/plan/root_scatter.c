/* Scatter: the root sends everybody's block straight to it and keeps its own as it is. */
#include "plan/algorithms.h"
#include "plan/schedule_writer.h"

static void hand_out(rpi_writer *writer) {
    int world = writer->schedule->world, root = writer->schedule->root;
    for (int distance = 1; distance < world; distance++) {
        int peer = rpi_wrap(root, distance, world);
        int wire = rpi_write_encode(writer, peer, RPI_SLOT_IN, RPI_ROLE_SENDER);
        rpi_write_send(writer, peer, wire, peer);
    }
    rpi_write_copy(writer, root, RPI_SLOT_IN, RPI_SLOT_OUT);
}

static rp_status build(const rpi_plan_request *request, rpi_schedule *out_schedule) {
    int rank = request->rank;
    rpi_writer writer = rpi_writer_start(request, request->world, out_schedule);
    if (rank == request->root) {
        hand_out(&writer);
    } else {
        int wire = rpi_write_recv(&writer, rank, request->root);
        rpi_write_decode(&writer, rank, wire, RPI_SLOT_OUT);
    }
    return rpi_writer_finish(&writer);
}

const rpi_algorithm rpi_algorithm_root_scatter = {
    .name = "direct",
    .summary = "the root sends each rank its block",
    .collective = RPI_SCATTER,
    .quantisations = 1,
    .fits = rpi_fits_all,
    .build = build,
};
