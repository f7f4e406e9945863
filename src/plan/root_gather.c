/* Gather: everybody's block straight to the root, which keeps its own as it is. */
#include "plan/algorithms.h"
#include "plan/schedule_writer.h"

static void collect(rpi_writer *writer) {
    int world = writer->schedule->world, root = writer->schedule->root;
    rpi_write_copy(writer, root, RPI_SLOT_IN, RPI_SLOT_OUT);
    for (int distance = 1; distance < world; distance++) {
        int source = rpi_wrap(root, distance, world);
        rpi_write_decode(writer, source, rpi_write_recv(writer, source, source), RPI_SLOT_OUT);
    }
}

static rp_status build(const rpi_plan_request *request, rpi_schedule *out_schedule) {
    int rank = request->rank;
    rpi_writer writer = rpi_writer_start(request, request->world, out_schedule);
    if (rank == request->root) {
        collect(&writer);
    } else {
        int wire = rpi_write_encode(&writer, rank, RPI_SLOT_IN, RPI_ROLE_SENDER);
        rpi_write_send(&writer, rank, wire, request->root);
    }
    return rpi_writer_finish(&writer);
}

const rpi_algorithm rpi_algorithm_root_gather = {
    .name = "direct",
    .summary = "each rank sends its block to the root",
    .collective = RPI_GATHER,
    .quantisations = 1,
    .fits = rpi_fits_all,
    .build = build,
};
