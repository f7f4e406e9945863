/* All-gather in two levels.
 *
 *   between  each rank sends its part to one rank of every other host, the one at its own place
 *            (modulo the ranks there)
 *   inside   every rank gives the others its own part and what came to it
 *
 * So each part comes to a host once, whatever the number of its ranks. It is encoded once, and
 * everybody decodes that encoding. Where each rank has a host to itself this is `direct`. */
#include "base/memory.h"
#include "plan/algorithms.h"
#include "plan/levels.h"
#include "plan/outline.h"

static int encode_own(rpi_levels *l) {
    int rank = l->writer.schedule->rank;
    if (l->layout.hosts == 1)
        return rpi_write_encode_inside(&l->writer, rank, RPI_SLOT_IN, RPI_ROLE_SENDER);
    return rpi_write_encode(&l->writer, rank, RPI_SLOT_IN, RPI_ROLE_SENDER);
}

/* encoded_slots[rank]: the encoding of that rank's part, of those this rank passes on. */
static void exchange(rpi_levels *l, int *encoded_slots) {
    int rank = l->writer.schedule->rank;
    encoded_slots[rank] = encode_own(l);
    for (int distance = 1; distance < l->layout.hosts; distance++)
        rpi_write_send(&l->writer, rank, encoded_slots[rank],
                       rpi_levels_leader(l, rpi_levels_host_at(l, distance), l->place));
    rpi_write_decode(&l->writer, rank, encoded_slots[rank], RPI_SLOT_OUT);
    for (int distance = 1; distance < l->layout.hosts; distance++) {
        int host = rpi_levels_host_at(l, -distance);
        for (int place = l->place; place < rpi_layout_size(&l->layout, host);
             place += l->size) {
            int peer = rpi_levels_leader(l, host, place);
            encoded_slots[peer] = rpi_write_recv(&l->writer, peer, peer);
            rpi_write_decode(&l->writer, peer, encoded_slots[peer], RPI_SLOT_OUT);
        }
    }
}

/* The parts of one host. One frame each way over each link, then the next. */
static void gather_host(rpi_levels *l, int host, const int *encoded_slots) {
    int places = rpi_layout_size(&l->layout, host);
    for (int block = 0; block < places; block += l->size) {
        int place = block + l->place, part = rpi_levels_leader(l, host, place);
        if (place < places) rpi_levels_pass_on(l, part, encoded_slots[part]);
        for (int d = 1; d < l->size; d++) {
            place = block + (l->place - d + l->size) % l->size;
            if (place < places) rpi_levels_take(l, rpi_levels_leader(l, host, place), place);
        }
    }
}

static void write_all(rpi_levels *l, int *encoded_slots) {
    exchange(l, encoded_slots);
    rpi_writer_round(&l->writer, 1);
    for (int distance = 0; distance < l->layout.hosts; distance++)
        gather_host(l, rpi_levels_host_at(l, -distance), encoded_slots);
}

static rp_status build(const rpi_plan_request *request, rpi_schedule *out_schedule) {
    rpi_levels l;
    int *encoded_slots = NULL;
    RP_TRY(rpi_levels_open(request, &l));
    l.writer = rpi_writer_start(request, request->world, out_schedule);
    rp_status status = rpi_alloc_array((size_t)request->world, sizeof *encoded_slots,
                                       "encoded slots of a schedule", &encoded_slots);
    if (status == RP_OK) write_all(&l, encoded_slots);
    rpi_free(encoded_slots);
    rp_status written = rpi_levels_finish(&l);
    return status == RP_OK ? written : status;
}

static rpi_outline outline(const rpi_world_shape *s) {
    double others = s->hosts - 1, others_here = s->widest - 1;
    return (rpi_outline){.rounds_between = others > 0,
                         .rounds_inside = others_here > 0,
                         .frames_between = 2 * others,
                         .frames_inside = 2 * others_here * s->hosts,
                         .host_bytes = others / s->hosts,
                         .inside_bytes = others_here / s->widest,
                         .worked = 2,
                         .parts = s->world};
}

const rpi_algorithm rpi_algorithm_two_level_gather = {
    .name = "two-level",
    .summary = "each part to every host once, and from there to its ranks",
    .collective = RPI_ALL_GATHER,
    .quantisations = 1,
    .knows_hosts = true,
    .fits = rpi_fits_all,
    .build = build,
    .outline = outline,
};
