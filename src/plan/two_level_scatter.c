/* Reduce-scatter in two levels. Part q is owned by rank q; on each host it is carried by the
 * rank at its owner's place (modulo the ranks there).
 *
 *   inside   every rank gives the leaders of its host what they carry, exactly; they add in
 *            the order of ranks
 *   between  leaders encode their host's sums and send each to its owner, who adds them in the
 *            order of hosts, its own host's as it is
 *
 * So a host sends each part that belongs elsewhere once, whatever the number of its ranks.
 * Where each rank has a host to itself this is `direct`. */
#include "plan/algorithms.h"
#include "plan/levels.h"
#include "plan/outline.h"

/* What this rank carries of one host: its own part of its own host's. */
static void collect(rpi_levels *l, int host, int place) {
    int part = rpi_levels_leader(l, host, place);
    if (l->size > 1) rpi_levels_collect(l, part);
    if (host == l->host) return;
    int wire = rpi_write_encode(&l->writer, part, rpi_levels_sum_slot(l), RPI_ROLE_SENDER);
    rpi_write_send(&l->writer, part, wire, part);
}

/* One frame each way over each link, then the next. */
static void reduce_host(rpi_levels *l, int host) {
    int places = rpi_layout_size(&l->layout, host);
    for (int block = 0; block < places; block += l->size) {
        for (int d = 1; d < l->size; d++) {
            int place = block + (l->place + d) % l->size;
            if (place < places) rpi_levels_give(l, rpi_levels_leader(l, host, place), place);
        }
        if (block + l->place < places) collect(l, host, block + l->place);
    }
}

static void write_all(rpi_levels *l) {
    int own = l->writer.schedule->rank;
    for (int distance = 1; distance <= l->layout.hosts; distance++)
        reduce_host(l, rpi_levels_host_at(l, distance));
    rpi_writer_round(&l->writer, 1);
    rpi_levels_add_hosts(l, own, l->place);
    rpi_write_result(&l->writer, own);
}

static rp_status build(const rpi_plan_request *request, rpi_schedule *out_schedule) {
    rpi_levels l;
    RP_TRY(rpi_levels_open(request, &l));
    l.writer = rpi_writer_start(request, request->world, out_schedule);
    if (request->world == 1)
        rpi_write_copy(&l.writer, 0, RPI_SLOT_IN, RPI_SLOT_OUT);
    else
        write_all(&l);
    return rpi_levels_finish(&l);
}

static rpi_outline outline(const rpi_world_shape *s) {
    double others = s->hosts - 1, others_here = s->widest - 1;
    return (rpi_outline){.rounds_between = others > 0,
                         .rounds_inside = others_here > 0,
                         .frames_between = 2 * others,
                         .frames_inside = 2 * others_here * s->hosts,
                         .host_bytes = others / s->hosts,
                         .inside_values = others_here / s->widest,
                         .worked = (others_here > 0 ? 2 : 1) + 1,
                         .parts = s->world};
}

const rpi_algorithm rpi_algorithm_two_level_scatter = {
    .name = "two-level",
    .summary = "reduce inside hosts, then each host's sums straight to their owners",
    .collective = RPI_REDUCE_SCATTER,
    .quantisations = 1,
    .knows_hosts = true,
    .fits = rpi_fits_all,
    .build = build,
    .outline = outline,
};
