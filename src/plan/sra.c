/* All-reduce by scatter-reduce-allgather. Rank p owns part p. Every rank sends each owner its
 * contribution, encoded once; the owner adds them in rank order, its own as it is, encodes the
 * sum once, sends that to all and decodes it itself. Two encodings an element, whatever the
 * world; 2S(P-1)/P bytes a rank. */
#include "plan/algorithms.h"
#include "plan/direct.h"
#include "plan/outline.h"

static rp_status build(const rpi_plan_request *request, rpi_schedule *out_schedule) {
    int world = request->world, rank = request->rank;
    rpi_writer writer = rpi_writer_start(request, world, out_schedule);
    if (world == 1) {
        rpi_write_copy(&writer, 0, RPI_SLOT_IN, RPI_SLOT_OUT);
        return rpi_writer_finish(&writer);
    }
    rpi_direct_reduce(&writer, 0);
    rpi_writer_round(&writer, 2);
    rpi_write_mean(&writer, rank);
    int sum = rpi_write_encode(&writer, rank, RPI_SLOT_SUM, RPI_ROLE_OWNER);
    rpi_direct_gather(&writer, sum, 2);
    return rpi_writer_finish(&writer);
}

static rpi_outline outline(const rpi_world_shape *s) {
    double share = (s->world - 1.0) / s->world;
    rpi_outline it = rpi_outline_all_pairs(s, 2, 2 * share);
    it.worked = 3 * share + 1; /* sent, added, the sum sent, that of others taken */
    return it;
}

const rpi_algorithm rpi_algorithm_sra = {
    .name = "sra",
    .summary = "scatter-reduce-allgather: two hops, each element encoded twice",
    .collective = RPI_ALL_REDUCE,
    .quantisations = 2,
    .rank_order = true,
    .fits = rpi_fits_all,
    .build = build,
    .outline = outline,
};
