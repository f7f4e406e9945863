/* Send and receive: the receiver says that it is ready, then the data comes. So a frame never
 * waits at the head of a link for a receive that has not been posted, in front of frames of
 * other operations. */
#include "plan/algorithms.h"
#include "plan/schedule_writer.h"

static bool fits(const rpi_plan_request *request) {
    return request->world == 2;
}

static rp_status build(const rpi_plan_request *request, rpi_schedule *out_schedule) {
    rpi_writer writer = rpi_writer_start(request, 1, out_schedule);
    if (request->rank == 0) {
        rpi_write_token_recv(&writer, 1);
        rpi_write_fence(&writer);
        rpi_writer_round(&writer, 1);
        int wire = rpi_write_encode(&writer, 0, RPI_SLOT_IN, RPI_ROLE_SENDER);
        rpi_write_send(&writer, 0, wire, 1);
    } else {
        rpi_write_token_send(&writer, 0);
        rpi_writer_round(&writer, 1);
        rpi_write_decode(&writer, 0, rpi_write_recv(&writer, 0, 0), RPI_SLOT_OUT);
    }
    return rpi_writer_finish(&writer);
}

const rpi_algorithm rpi_algorithm_rendezvous = {
    .name = "rendezvous",
    .summary = "a token from the receiver, then the data",
    .collective = RPI_SENDRECV,
    .quantisations = 1,
    .fits = fits,
    .build = build,
};
