/* Send and receive around the ranks: each sends to the next and receives from the one before,
 * each of the two as `rendezvous` does, over the same two ways of one NIC. What a rank does in
 * `redpoll bench send-recv`, to be printed and priced; the executor runs the two as they are.
 */
#include "plan/algorithms.h"
#include "plan/schedule_writer.h"

static bool fits(const rpi_plan_request *request) {
    return request->world >= 2;
}

static rp_status build(const rpi_plan_request *request, rpi_schedule *out_schedule) {
    rpi_writer writer = rpi_writer_start(request, 1, out_schedule);
    int next = rpi_wrap(request->rank, 1, request->world);
    int previous = rpi_wrap(request->rank, -1, request->world);
    rpi_write_token_send(&writer, previous);
    rpi_write_token_recv(&writer, next);
    rpi_write_fence(&writer);
    rpi_writer_round(&writer, 1);
    int wire = rpi_write_encode(&writer, 0, RPI_SLOT_IN, RPI_ROLE_SENDER);
    rpi_write_send(&writer, 0, wire, next);
    rpi_write_decode(&writer, 0, rpi_write_recv(&writer, 0, previous), RPI_SLOT_OUT);
    return rpi_writer_finish(&writer);
}

const rpi_algorithm rpi_algorithm_neighbours = {
    .name = "rendezvous",
    .summary = "a token from each receiver, then the data, around the ranks",
    .collective = RPI_SENDRECV,
    .quantisations = 1,
    .fits = fits,
    .build = build,
};
