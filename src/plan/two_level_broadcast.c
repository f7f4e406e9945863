/* Broadcast in two levels. The vector has s shards (as many as the widest host has ranks) of
 * H - 1 parts: part (s, k) goes first to the host at distance k from the root's, to the rank at
 * place s there (modulo the ranks there).
 *
 *   between  the root sends part (s, k) to that rank, which sends it to those at place s of the
 *            other hosts
 *   inside   whoever has a part from another host gives it to the rest; on the root's own host
 *            the rank at place s does, which has it from the root
 *
 * So every byte leaves and enters a host once, whatever the number of its ranks, and the root's
 * ranks of a host share the work of giving it to each other. */
#include "plan/algorithms.h"
#include "plan/levels.h"
#include "plan/outline.h"

#include <math.h>

typedef struct route {
    int part, shard;
    int home, first; /* hosts: the root's, and the one that has the part next */
} route;

static void copy_own(rpi_levels *l) {
    for (int part = 0; part < l->writer.schedule->parts; part++)
        rpi_write_copy(&l->writer, part, RPI_SLOT_IN, RPI_SLOT_OUT);
}

/* To the others but for the root and the rank it came from. */
static void give_host(rpi_levels *l, const route *r, int wire, int from) {
    for (int d = 1; d < l->size; d++) {
        int local_rank = rpi_levels_leader(l, l->host, l->place + d);
        if (local_rank != l->writer.schedule->root && local_rank != from)
            rpi_write_send(&l->writer, r->part, wire, local_rank);
    }
}

/* The root itself stands in for the leader of its host where that is its own place. */
static void start(rpi_levels *l, const route *r) {
    int local_rank = rpi_levels_leader(l, l->host, r->shard);
    int wire = rpi_write_encode(&l->writer, r->part, RPI_SLOT_IN, RPI_ROLE_SENDER);
    if (r->first != l->host)
        rpi_write_send(&l->writer, r->part, wire, rpi_levels_leader(l, r->first, r->shard));
    if (local_rank == l->writer.schedule->rank)
        give_host(l, r, wire, local_rank);
    else
        rpi_write_send(&l->writer, r->part, wire, local_rank);
}

/* Who sends this rank the part: the root, the first to have it outside, or a mate. */
static int source(const rpi_levels *l, const route *r) {
    int leader = rpi_levels_leader(l, l->host, r->shard), root = l->writer.schedule->root;
    if (leader != l->writer.schedule->rank) return leader;
    bool first_hand = l->host == r->home || l->host == r->first;
    return first_hand ? root : rpi_levels_leader(l, r->first, r->shard);
}

static void relay(rpi_levels *l, const route *r) {
    int from = source(l, r), hosts = l->layout.hosts;
    int wire = rpi_write_recv(&l->writer, r->part, from);
    rpi_write_decode(&l->writer, r->part, wire, RPI_SLOT_OUT);
    if (rpi_levels_leader(l, l->host, r->shard) != l->writer.schedule->rank) return;
    for (int distance = 1; distance < hosts && l->host == r->first; distance++) {
        int host = rpi_levels_host_at(l, distance);
        if (host != r->home)
            rpi_write_send(&l->writer, r->part, wire, rpi_levels_leader(l, host, r->shard));
    }
    give_host(l, r, wire, from);
}

static void write_all(rpi_levels *l) {
    const rpi_schedule *schedule = l->writer.schedule;
    int home = l->layout.host_of[schedule->root], shards = l->layout.widest;
    for (int part = 0; part < schedule->parts; part++) {
        route r = {.part = part, .shard = part % shards, .home = home};
        r.first = rpi_wrap(home, (part / shards + 1) % l->layout.hosts, l->layout.hosts);
        if (schedule->rank == schedule->root)
            start(l, &r);
        else
            relay(l, &r);
    }
    if (schedule->rank == schedule->root) copy_own(l);
}

static rp_status build(const rpi_plan_request *request, rpi_schedule *out_schedule) {
    rpi_levels l;
    RP_TRY(rpi_levels_open(request, &l));
    int others = l.layout.hosts - 1;
    l.writer = rpi_writer_start(request, l.layout.widest * (others ? others : 1), out_schedule);
    if (request->world == 1)
        copy_own(&l);
    else
        write_all(&l);
    return rpi_levels_finish(&l);
}

static rpi_outline outline(const rpi_world_shape *s) {
    double others = s->hosts - 1, others_here = s->widest - 1;
    return (rpi_outline){.rounds_between = others > 1 ? 2 : others,
                         .rounds_inside = others_here > 0 ? (others > 0 ? 1 : 2) : 0,
                         .frames_between = others * fmax(s->widest, 2),
                         .frames_inside = others_here * (others > 0 ? others : 1) * 2,
                         .host_bytes = others > 0,
                         .inside_bytes = 2 * others_here / s->widest,
                         .worked = 1,
                         .parts = s->widest * (s->hosts > 1 ? s->hosts - 1 : 1)};
}

const rpi_algorithm rpi_algorithm_two_level_broadcast = {
    .name = "two-level",
    .summary = "every byte leaves and enters a host once, and goes round inside",
    .collective = RPI_BROADCAST,
    .quantisations = 1,
    .knows_hosts = true,
    .fits = rpi_fits_all,
    .build = build,
    .outline = outline,
};
