/* All-reduce by halving and doubling: reduce-scatter by recursive halving, all-gather by
 * recursive doubling. In the first round ranks at distance P/2 exchange halves of the vector,
 * in the second quarters at P/4, and so on; then the finished parts the same way back. 2 log2 P
 * latencies and 2S(P-1)/P bytes. Worlds that are no power of two go in pairs first (powers.h),
 * which costs two more latencies and S bytes. Partial sums are encoded anew in each round. */
#include "base/memory.h"
#include "plan/algorithms.h"
#include "plan/outline.h"
#include "plan/powers.h"
#include "plan/schedule_writer.h"

typedef struct halving {
    rpi_writer writer;
    rpi_powers powers;
    int round;
    int *encoded_slots; /* [members]: the encoding of each finished part */
} halving;

static void send_part(rpi_writer *writer, int part, bool first, int peer) {
    int wire =
        rpi_write_encode(writer, part, first ? RPI_SLOT_IN : RPI_SLOT_SUM, RPI_ROLE_SENDER);
    rpi_write_send(writer, part, wire, peer);
}

static void add_part(rpi_writer *writer, int part, bool first, int peer) {
    if (first) rpi_write_copy(writer, part, RPI_SLOT_IN, RPI_SLOT_SUM);
    rpi_write_add(writer, part, rpi_write_recv(writer, part, peer), RPI_SLOT_SUM);
}

/* Parts member & ~(distance - 1) ... are this rank's side after the round, those of its partner
 * the other; one frame each way at a time. */
static void halve(halving *h, bool first) {
    int self = h->powers.member;
    for (int distance = h->powers.members / 2; distance > 0; distance /= 2) {
        int partner = self ^ distance, peer = rpi_powers_rank(&h->powers, partner);
        int kept = self & ~(distance - 1), given = partner & ~(distance - 1);
        rpi_writer_round(&h->writer, h->round++);
        for (int i = 0; i < distance; i++) {
            send_part(&h->writer, given + i, first, peer);
            add_part(&h->writer, kept + i, first, peer);
        }
        first = false;
    }
}

static void double_up(halving *h) {
    rpi_writer *writer = &h->writer;
    int self = h->powers.member;
    rpi_writer_round(writer, h->round);
    rpi_write_mean(writer, self);
    h->encoded_slots[self] = rpi_write_encode(writer, self, RPI_SLOT_SUM, RPI_ROLE_OWNER);
    rpi_write_decode(writer, self, h->encoded_slots[self], RPI_SLOT_OUT);
    for (int distance = 1; distance < h->powers.members; distance *= 2) {
        int partner = self ^ distance, peer = rpi_powers_rank(&h->powers, partner);
        int have = self & ~(distance - 1), want = partner & ~(distance - 1);
        rpi_writer_round(writer, h->round++);
        for (int i = 0; i < distance; i++) {
            rpi_write_send(writer, have + i, h->encoded_slots[have + i], peer);
            h->encoded_slots[want + i] = rpi_write_recv(writer, want + i, peer);
            rpi_write_decode(writer, want + i, h->encoded_slots[want + i], RPI_SLOT_OUT);
        }
    }
}

/* The odd one of a pair. */
static void lean(halving *h, int even) {
    for (int part = 0; part < h->powers.members; part++)
        send_part(&h->writer, part, true, even);
    for (int part = 0; part < h->powers.members; part++)
        rpi_write_decode(&h->writer, part, rpi_write_recv(&h->writer, part, even),
                         RPI_SLOT_OUT);
}

static void write_all(halving *h, int rank) {
    if (h->powers.member < 0) {
        lean(h, rank - 1);
        return;
    }
    for (int part = 0; h->powers.pair && part < h->powers.members; part++)
        add_part(&h->writer, part, true, rank + 1);
    h->round = h->powers.pair;
    halve(h, !h->powers.pair);
    double_up(h);
    rpi_writer_round(&h->writer, h->round);
    for (int part = 0; h->powers.pair && part < h->powers.members; part++)
        rpi_write_send(&h->writer, part, h->encoded_slots[part], rank + 1);
}

static rp_status build(const rpi_plan_request *request, rpi_schedule *out_schedule) {
    halving h = {.powers = rpi_powers_of(request->world, request->rank)};
    h.writer = rpi_writer_start(request, h.powers.members, out_schedule);
    RP_TRY(rpi_alloc_array((size_t)h.powers.members, sizeof *h.encoded_slots,
                           "encoded slots of a schedule", &h.encoded_slots));
    if (request->world == 1)
        rpi_write_copy(&h.writer, 0, RPI_SLOT_IN, RPI_SLOT_OUT);
    else
        write_all(&h, request->rank);
    rpi_free(h.encoded_slots);
    return rpi_writer_finish(&h.writer);
}

static rpi_outline outline(const rpi_world_shape *s) {
    rpi_powers powers = rpi_powers_of(s->world, 0);
    double share = (powers.members - 1.0) / powers.members;
    rpi_outline it = rpi_outline_all_pairs(s, 2, 2 * share);
    double rounds = 2.0 * rpi_log2_up(powers.members), between = 2.0 * rpi_log2_up(s->hosts);
    if (between > rounds) between = rounds;
    double frames = 4.0 * (powers.members - 1), more = powers.pairs ? 1 : 0;
    it.rounds_between = between + (s->hosts > 1 ? 2 * more : 0);
    it.rounds_inside = rounds - between + (s->hosts > 1 ? 0 : 2 * more);
    frames += more * 2 * powers.members;
    it.frames_between = s->hosts > 1 ? frames : 0;
    it.frames_inside = s->hosts > 1 ? 0 : frames;
    it.host_bytes += s->hosts > 1 ? more * s->widest : 0;
    it.worked += 2 * more;
    it.parts = powers.members;
    return it;
}

const rpi_algorithm rpi_algorithm_halving = {
    .name = "halving",
    .summary = "recursive halving, then doubling: 2 log2 P rounds, each half as long",
    .collective = RPI_ALL_REDUCE,
    .quantisations = -1,
    .fits = rpi_fits_all,
    .build = build,
    .outline = outline,
};
