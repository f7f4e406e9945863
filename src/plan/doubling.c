/* All-reduce by recursive doubling: in round k ranks at distance 2^k exchange what they have
 * and add, the lower rank's first, so that both hold the same bits. In worlds that are no power
 * of two the first ranks go in pairs: the odd one gives its vector to the even one and gets the
 * result. For short vectors: ceil(log2 P) latencies, two more for pairs; S bytes in each. */
#include "plan/algorithms.h"
#include "plan/outline.h"
#include "plan/powers.h"
#include "plan/schedule_writer.h"

/* Both sides add the decodings of the same two encodings. */
static void exchange(rpi_writer *writer, int peer, bool first) {
    int slot = first ? RPI_SLOT_IN : RPI_SLOT_SUM;
    int mine = rpi_write_encode(writer, 0, slot, RPI_ROLE_SENDER);
    rpi_write_send(writer, 0, mine, peer);
    int theirs = rpi_write_recv(writer, 0, peer);
    bool lower = writer->schedule->rank < peer;
    int own = first ? RPI_SLOT_IN : mine;
    rpi_write_accumulate(writer, 0, lower ? own : theirs, true);
    rpi_write_accumulate(writer, 0, lower ? theirs : own, false);
}

static void double_up(rpi_writer *writer, const rpi_powers *powers, int round, bool first) {
    for (int distance = 1; distance < powers->members; distance *= 2) {
        rpi_writer_round(writer, round++);
        exchange(writer, rpi_powers_rank(powers, powers->member ^ distance), first);
        first = false;
    }
    if (!powers->pair) {
        rpi_write_result(writer, 0);
        return;
    }
    rpi_writer_round(writer, round);
    rpi_write_mean(writer, 0);
    int wire = rpi_write_encode(writer, 0, RPI_SLOT_SUM, RPI_ROLE_OWNER);
    rpi_write_send(writer, 0, wire, writer->schedule->rank + 1);
    rpi_write_copy(writer, 0, RPI_SLOT_SUM, RPI_SLOT_OUT);
}

/* The odd one of a pair. */
static void lean(rpi_writer *writer, int even) {
    int wire = rpi_write_encode(writer, 0, RPI_SLOT_IN, RPI_ROLE_SENDER);
    rpi_write_send(writer, 0, wire, even);
    rpi_write_decode(writer, 0, rpi_write_recv(writer, 0, even), RPI_SLOT_OUT);
}

static rp_status build(const rpi_plan_request *request, rpi_schedule *out_schedule) {
    rpi_powers powers = rpi_powers_of(request->world, request->rank);
    rpi_writer writer = rpi_writer_start(request, 1, out_schedule);
    if (request->world == 1) {
        rpi_write_copy(&writer, 0, RPI_SLOT_IN, RPI_SLOT_OUT);
    } else if (powers.member < 0) {
        lean(&writer, request->rank - 1);
    } else {
        if (powers.pair) {
            rpi_write_copy(&writer, 0, RPI_SLOT_IN, RPI_SLOT_SUM);
            int wire = rpi_write_recv(&writer, 0, request->rank + 1);
            rpi_write_add(&writer, 0, wire, RPI_SLOT_SUM);
        }
        double_up(&writer, &powers, powers.pair, !powers.pair);
    }
    return rpi_writer_finish(&writer);
}

static rpi_outline outline(const rpi_world_shape *s) {
    int between = rpi_log2_up(s->hosts), inside = rpi_log2_up(s->world) - between;
    if (inside < 0) inside = 0;
    int more = (s->world & (s->world - 1)) != 0; /* pairs: a frame each way, one latency more */
    return (rpi_outline){.rounds_between = between + (s->hosts > 1 ? more : 0),
                         .rounds_inside = inside + (s->hosts > 1 ? 0 : more),
                         .frames_between = 2.0 * between,
                         .frames_inside = 2.0 * inside,
                         .host_bytes = (double)s->widest * between,
                         .inside_bytes = inside,
                         .worked = 3.0 * (between + inside + more),
                         .parts = 1};
}

const rpi_algorithm rpi_algorithm_doubling = {
    .name = "doubling",
    .summary = "recursive doubling: log2 P rounds of the whole vector, for short ones; exact",
    .collective = RPI_ALL_REDUCE,
    .exact = true,
    .fits = rpi_fits_all,
    .build = build,
    .outline = outline,
};
