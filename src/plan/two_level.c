/* All-reduce in two levels. The vector has S shards of H parts: S ranks of the widest host, H
 * hosts. On each host shard s is carried by the rank at place s (modulo the ranks there), and
 * part (s, h) is owned by the carrier of shard s on host h.
 *
 *   inside   every rank gives the carriers of its host their shards, exactly; they add in the
 *            order of ranks
 *   between  the carriers of a shard do what `sra` does: each sends every owner its host's sum,
 *            the owner adds in the order of hosts, encodes once, and sends that to all
 *   inside   carriers pass on the encodings that came, and everybody decodes them
 *
 * So a host sends 2S(H-1)/H bytes whatever its number of ranks, each rank an equal share of
 * them, and codecs lose between hosts only: an element is encoded lossily twice. The owner's
 * own host's sum takes part exactly. Where each rank has a host to itself this is `sra`. */
#include "base/memory.h"
#include "plan/algorithms.h"
#include "plan/layout.h"
#include "plan/outline.h"
#include "plan/schedule_writer.h"

typedef struct levels {
    rpi_writer writer;
    rpi_layout layout;
    int host, place, size; /* of this rank; ranks on its host */
    int *wires;            /* [shards it carries][hosts]: the encodings of the results */
} levels;

static int carrier(const levels *l, int host, int shard) {
    return rpi_layout_rank(&l->layout, host, shard);
}

static int part_of(const levels *l, int shard, int host) {
    return shard * l->layout.hosts + host;
}

static int host_at(const levels *l, int distance) {
    return rpi_wrap(l->host, distance, l->layout.hosts);
}

/* Where this rank's contributions between hosts come from. */
static int source_slot(const levels *l) {
    return l->size == 1 ? RPI_SLOT_IN : RPI_SLOT_SUM;
}

/* ---- inside: to the carriers ---- */

static void give(levels *l, int shard, int host) {
    rpi_writer *writer = &l->writer;
    int part = part_of(l, shard, host);
    int wire = rpi_write_encode_inside(writer, part, RPI_SLOT_IN, RPI_ROLE_SENDER);
    rpi_write_send(writer, part, wire, carrier(l, l->host, shard));
}

static void collect(levels *l, int shard, int host) {
    int part = part_of(l, shard, host);
    for (int place = 0; place < l->size; place++) {
        int peer = rpi_layout_rank(&l->layout, l->host, place);
        int from =
            place == l->place ? RPI_SLOT_IN : rpi_write_recv_inside(&l->writer, part, peer);
        rpi_write_accumulate(&l->writer, part, from, place == 0);
    }
}

/* One frame each way over each link, then the next: `block` counts the shards of a carrier. */
static void scatter_inside(levels *l) {
    int shards = l->layout.widest;
    if (l->size == 1) return;
    for (int block = 0; block < shards; block += l->size)
        for (int distance = 1; distance <= l->layout.hosts; distance++) {
            for (int d = 1; d < l->size; d++) {
                int shard = block + (l->place + d) % l->size;
                if (shard < shards) give(l, shard, host_at(l, distance));
            }
            if (block + l->place < shards) collect(l, block + l->place, host_at(l, distance));
        }
}

/* ---- between: among the carriers of a shard ---- */

/* In the order of hosts. What this host has is in SUM already where it has several ranks: it
 * steps aside, exactly, for those that come before it. */
static void add_hosts(levels *l, int shard) {
    rpi_writer *writer = &l->writer;
    int part = part_of(l, shard, l->host), own = source_slot(l);
    bool aside = own == RPI_SLOT_SUM && l->host > 0;
    if (aside) own = rpi_write_encode_inside(writer, part, RPI_SLOT_SUM, RPI_ROLE_SENDER);
    for (int host = 0; host < l->layout.hosts; host++) {
        int from =
            host == l->host ? own : rpi_write_recv(writer, part, carrier(l, host, shard));
        if (from != RPI_SLOT_SUM) rpi_write_accumulate(writer, part, from, host == 0);
    }
}

static int encode_result(levels *l, int part) {
    rpi_write_mean(&l->writer, part);
    if (l->layout.hosts == 1)
        return rpi_write_encode_inside(&l->writer, part, RPI_SLOT_SUM, RPI_ROLE_OWNER);
    return rpi_write_encode(&l->writer, part, RPI_SLOT_SUM, RPI_ROLE_OWNER);
}

/* wires[k]: the encoding of the result that the host k before has. */
static void exchange(levels *l, int shard, int *wires) {
    rpi_writer *writer = &l->writer;
    int hosts = l->layout.hosts, mine = part_of(l, shard, l->host);
    rpi_writer_round(writer, 1);
    for (int distance = 1; distance < hosts; distance++) {
        int host = host_at(l, distance), part = part_of(l, shard, host);
        int wire = rpi_write_encode(writer, part, source_slot(l), RPI_ROLE_SENDER);
        rpi_write_send(writer, part, wire, carrier(l, host, shard));
    }
    add_hosts(l, shard);
    rpi_writer_round(writer, 2);
    wires[0] = encode_result(l, mine);
    for (int distance = 1; distance < hosts; distance++)
        rpi_write_send(writer, mine, wires[0], carrier(l, host_at(l, distance), shard));
    rpi_write_decode(writer, mine, wires[0], RPI_SLOT_OUT);
    for (int distance = 1; distance < hosts; distance++) {
        int host = host_at(l, -distance), part = part_of(l, shard, host);
        wires[distance] = rpi_write_recv(writer, part, carrier(l, host, shard));
        rpi_write_decode(writer, part, wires[distance], RPI_SLOT_OUT);
    }
}

/* ---- inside: to everybody ---- */

static void pass_on(levels *l, int shard, int distance, int wire) {
    int part = part_of(l, shard, host_at(l, -distance));
    for (int d = 1; d < l->size; d++)
        rpi_write_send(&l->writer, part, wire, carrier(l, l->host, l->place + d));
}

static void take(levels *l, int shard, int distance) {
    int part = part_of(l, shard, host_at(l, -distance)), peer = carrier(l, l->host, shard);
    int wire = l->layout.hosts == 1 ? rpi_write_recv_inside(&l->writer, part, peer)
                                    : rpi_write_recv(&l->writer, part, peer);
    rpi_write_decode(&l->writer, part, wire, RPI_SLOT_OUT);
}

static void gather_inside(levels *l) {
    int hosts = l->layout.hosts, shards = l->layout.widest;
    if (l->size == 1) return;
    rpi_writer_round(&l->writer, 3);
    for (int block = 0, nth = 0; block < shards; block += l->size, nth++)
        for (int distance = 0; distance < hosts; distance++) {
            int shard = block + l->place;
            if (shard < shards) pass_on(l, shard, distance, l->wires[nth * hosts + distance]);
            for (int d = 1; d < l->size; d++) {
                shard = block + (l->place - d + l->size) % l->size;
                if (shard < shards) take(l, shard, distance);
            }
        }
}

static void write_all(levels *l) {
    int nth = 0;
    scatter_inside(l);
    for (int shard = l->place; shard < l->layout.widest; shard += l->size)
        exchange(l, shard, &l->wires[nth++ * l->layout.hosts]);
    gather_inside(l);
}

static rp_status build(const rpi_plan_request *request, rpi_schedule *out_schedule) {
    levels l = {0};
    RP_TRY(rpi_layout_make(request, &l.layout));
    l.host = l.layout.host_of[request->rank];
    l.place = l.layout.place[request->rank];
    l.size = rpi_layout_size(&l.layout, l.host);
    int carried = l.layout.widest / l.size + 1;
    l.writer = rpi_writer_start(request, l.layout.widest * l.layout.hosts, out_schedule);
    rp_status status = rpi_alloc_array((size_t)carried * (size_t)l.layout.hosts,
                                       sizeof *l.wires, "wires of a schedule", &l.wires);
    if (status == RP_OK && request->world == 1)
        rpi_write_copy(&l.writer, 0, RPI_SLOT_IN, RPI_SLOT_OUT);
    else if (status == RP_OK)
        write_all(&l);
    rpi_free(l.wires);
    rpi_layout_free(&l.layout);
    return status == RP_OK ? rpi_writer_finish(&l.writer) : status;
}

static rpi_outline outline(const rpi_world_shape *s) {
    double hosts = s->hosts, wide = s->widest;
    double others = hosts - 1, mates = wide - 1;
    return (rpi_outline){.rounds_between = hosts > 1 ? 2 : 0,
                         .rounds_inside = wide > 1 ? 2 : 0,
                         .frames_between = 4 * others,
                         .frames_inside = 4 * mates * hosts,
                         .host_bytes = 2 * others / hosts,
                         .inside_bytes = mates / wide,
                         .inside_values = mates / wide,
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
