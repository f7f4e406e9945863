/* All-reduce in two levels. The vector has S shards of H parts: S ranks of the widest host, H
 * hosts. On each host shard s is carried by the rank at place s (modulo the ranks there), and
 * part (s, h) is owned by the leader of shard s on host h.
 *
 *   inside   every rank gives the leaders of its host their shards, exactly; they add in the
 *            order of ranks
 *   between  the leaders of a shard do what `sra` does: each sends every owner its host's sum,
 *            the owner adds in the order of hosts, encodes once, and sends that to all
 *   inside   leaders pass on the encodings that came, and everybody decodes them
 *
 * So a host sends 2S(H-1)/H bytes whatever its number of ranks, each rank an equal share of
 * them, and codecs lose between hosts only: an element is encoded lossily twice. The owner's
 * own host's sum takes part exactly. Where each rank has a host to itself this is `sra`. */
#include "base/memory.h"
#include "plan/algorithms.h"
#include "plan/levels.h"
#include "plan/outline.h"

static int part_of(const rpi_levels *l, int shard, int host) {
    return shard * l->layout.hosts + host;
}

/* One frame each way over each link, then the next: `block` counts the shards of a leader. */
static void scatter_inside(rpi_levels *l) {
    int shards = l->layout.widest;
    if (l->size == 1) return;
    for (int block = 0; block < shards; block += l->size)
        for (int distance = 1; distance <= l->layout.hosts; distance++) {
            int host = rpi_levels_host_at(l, distance);
            for (int d = 1; d < l->size; d++) {
                int shard = block + (l->place + d) % l->size;
                if (shard < shards) rpi_levels_give(l, part_of(l, shard, host), shard);
            }
            int mine = block + l->place;
            if (mine < shards) rpi_levels_collect(l, part_of(l, mine, host));
        }
}

/* ---- between: among the leaders of a shard ---- */

static int encode_result(rpi_levels *l, int part) {
    rpi_write_mean(&l->writer, part);
    if (l->layout.hosts == 1)
        return rpi_write_encode_inside(&l->writer, part, RPI_SLOT_SUM, RPI_ROLE_OWNER);
    return rpi_write_encode(&l->writer, part, RPI_SLOT_SUM, RPI_ROLE_OWNER);
}

/* Rounds that no rank has a step in are not counted. */
static int round_between(const rpi_levels *l) {
    return l->layout.widest > 1;
}

static int round_of_results(const rpi_levels *l) {
    return round_between(l) + (l->layout.hosts > 1);
}

static int round_of_gather(const rpi_levels *l) {
    return round_of_results(l) + (l->layout.hosts > 1);
}

/* encoded_slots[k]: the encoding of the result that the host k before has. */
static void exchange(rpi_levels *l, int shard, int *encoded_slots) {
    rpi_writer *writer = &l->writer;
    int hosts = l->layout.hosts, mine = part_of(l, shard, l->host);
    rpi_writer_round(writer, round_between(l));
    for (int distance = 1; distance < hosts; distance++) {
        int host = rpi_levels_host_at(l, distance), part = part_of(l, shard, host);
        int wire = rpi_write_encode(writer, part, rpi_levels_sum_slot(l), RPI_ROLE_SENDER);
        rpi_write_send(writer, part, wire, rpi_levels_leader(l, host, shard));
    }
    rpi_levels_add_hosts(l, mine, shard);
    rpi_writer_round(writer, round_of_results(l));
    encoded_slots[0] = encode_result(l, mine);
    for (int distance = 1; distance < hosts; distance++)
        rpi_write_send(writer, mine, encoded_slots[0],
                       rpi_levels_leader(l, rpi_levels_host_at(l, distance), shard));
    rpi_write_decode(writer, mine, encoded_slots[0], RPI_SLOT_OUT);
    for (int distance = 1; distance < hosts; distance++) {
        int host = rpi_levels_host_at(l, -distance), part = part_of(l, shard, host);
        encoded_slots[distance] =
            rpi_write_recv(writer, part, rpi_levels_leader(l, host, shard));
        rpi_write_decode(writer, part, encoded_slots[distance], RPI_SLOT_OUT);
    }
}

/* ---- inside: to everybody ---- */

static void gather_inside(rpi_levels *l, const int *encoded_slots) {
    int hosts = l->layout.hosts, shards = l->layout.widest;
    if (l->size == 1) return;
    rpi_writer_round(&l->writer, round_of_gather(l));
    for (int block = 0, nth = 0; block < shards; block += l->size, nth++)
        for (int distance = 0; distance < hosts; distance++) {
            int host = rpi_levels_host_at(l, -distance), shard = block + l->place;
            if (shard < shards)
                rpi_levels_pass_on(l, part_of(l, shard, host),
                                   encoded_slots[nth * hosts + distance]);
            for (int d = 1; d < l->size; d++) {
                shard = block + (l->place - d + l->size) % l->size;
                if (shard < shards) rpi_levels_take(l, part_of(l, shard, host), shard);
            }
        }
}

static void write_all(rpi_levels *l, int *encoded_slots) {
    int nth = 0;
    scatter_inside(l);
    for (int shard = l->place; shard < l->layout.widest; shard += l->size)
        exchange(l, shard, &encoded_slots[nth++ * l->layout.hosts]);
    gather_inside(l, encoded_slots);
}

static rp_status build(const rpi_plan_request *request, rpi_schedule *out_schedule) {
    rpi_levels l;
    int *encoded_slots = NULL; /* [shards it carries][hosts]: the encodings of the results */
    RP_TRY(rpi_levels_open(request, &l));
    int hosts = l.layout.hosts, carried = l.layout.widest / l.size + 1;
    l.writer = rpi_writer_start(request, l.layout.widest * hosts, out_schedule);
    rp_status status = rpi_alloc_array((size_t)carried * (size_t)hosts, sizeof *encoded_slots,
                                       "encoded slots of a schedule", &encoded_slots);
    if (status == RP_OK && request->world == 1)
        rpi_write_copy(&l.writer, 0, RPI_SLOT_IN, RPI_SLOT_OUT);
    else if (status == RP_OK)
        write_all(&l, encoded_slots);
    rpi_free(encoded_slots);
    rp_status written = rpi_levels_finish(&l);
    return status == RP_OK ? written : status;
}

static rpi_outline outline(const rpi_world_shape *s) {
    double hosts = s->hosts, wide = s->widest;
    double others = hosts - 1, others_here = wide - 1;
    return (rpi_outline){.rounds_between = hosts > 1 ? 2 : 0,
                         .rounds_inside = wide > 1 ? 2 : 0,
                         .frames_between = 4 * others,
                         .frames_inside = 4 * others_here * hosts,
                         .host_bytes = 2 * others / hosts,
                         .inside_bytes = others_here / wide,
                         .inside_values = others_here / wide,
                         .worked = (wide > 1 ? 2 : 1) + 3,
                         .parts = s->widest * s->hosts};
}

const rpi_algorithm rpi_algorithm_two_level = {
    .name = "two-level",
    .summary = "reduce inside hosts, sra between them with a shard a rank, gather inside",
    .collective = RPI_ALL_REDUCE,
    .quantisations = 2,
    .knows_hosts = true,
    .fits = rpi_fits_all,
    .build = build,
    .outline = outline,
};
