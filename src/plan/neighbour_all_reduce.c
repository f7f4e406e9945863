/* One round of gossip: a rank sends its vector to its neighbours, encoded once, and adds what
 * comes in the order of ranks, its own in its place and unencoded, each times its weight. Where
 * all weights are the same it adds first and divides once, as BlueFog does: the mean of equal
 * numbers is that number. */
#include "plan/algorithms.h"
#include "plan/schedule_writer.h"
#include "plan/topologies/mixing.h"

static bool fits(const rpi_plan_request *request) {
    return request->mixing && request->mixing->ranks == request->world &&
           request->mixing->vectors == 1;
}

typedef struct sum {
    rpi_writer *writer;
    rpi_fraction common; /* the weight of all; zeros: each has another */
    bool begun;
} sum;

static rpi_fraction common_weight(rpi_edges in, const rpi_edge *own) {
    for (int i = 0; i < in.count; i++)
        if (in.list[i].weight.times != own->weight.times ||
            in.list[i].weight.over != own->weight.over)
            return (rpi_fraction){0};
    return own->weight;
}

/* `from` starts the sum or is added to it. Decoding knows no weight: the sum is weighed where
 * it lies. */
static void add(sum *s, int from, rpi_fraction weight) {
    bool weighed = !s->common.over;
    if (s->begun && weighed)
        rpi_write_weighed_add(s->writer, 0, from, weight);
    else if (!s->begun && weighed && from == RPI_SLOT_IN)
        rpi_write_weighed_copy(s->writer, 0, from, RPI_SLOT_SUM, weight);
    else
        rpi_write_accumulate(s->writer, 0, from, !s->begun);
    if (!s->begun && weighed && from != RPI_SLOT_IN)
        rpi_write_weighed_copy(s->writer, 0, RPI_SLOT_SUM, RPI_SLOT_SUM, weight);
    s->begun = true;
}

static void write_sum(rpi_writer *writer, int rank, rpi_edges in, const rpi_edge *own) {
    sum s = {.writer = writer, .common = common_weight(in, own)};
    bool own_is_due = own->weight.times != 0;
    for (int i = 0; i < in.count; i++) {
        if (own_is_due && in.list[i].rank > rank) {
            add(&s, RPI_SLOT_IN, own->weight);
            own_is_due = false;
        }
        add(&s, rpi_write_recv(writer, 0, in.list[i].rank), in.list[i].weight);
    }
    if (own_is_due) add(&s, RPI_SLOT_IN, own->weight);
    if (s.common.over)
        rpi_write_weighed_copy(writer, 0, RPI_SLOT_SUM, RPI_SLOT_OUT, s.common);
    else
        rpi_write_copy(writer, 0, RPI_SLOT_SUM, RPI_SLOT_OUT);
}

static rp_status build(const rpi_plan_request *request, rpi_schedule *out_schedule) {
    rpi_writer writer = rpi_writer_start(request, 1, out_schedule);
    rpi_edges in = rpi_mixing_in(request->mixing, request->rank);
    rpi_edges out = rpi_mixing_out(request->mixing, request->rank);
    const rpi_edge *own = rpi_mixing_own(request->mixing, request->rank).list;
    int wire = out.count ? rpi_write_encode(&writer, 0, RPI_SLOT_IN, RPI_ROLE_SENDER) : 0;
    for (int i = 0; i < out.count; i++) rpi_write_send(&writer, 0, wire, out.list[i].rank);
    if (!in.count && own->weight.times == own->weight.over)
        rpi_write_copy(&writer, 0, RPI_SLOT_IN, RPI_SLOT_OUT);
    else
        write_sum(&writer, request->rank, in, own);
    return rpi_writer_finish(&writer);
}

const rpi_algorithm rpi_algorithm_neighbour_all_reduce = {
    .name = "direct",
    .summary = "to the neighbours of a topology's round, which add by their weights",
    .collective = RPI_NEIGHBOUR_ALL_REDUCE,
    .quantisations = 1,
    .rank_order = true,
    .fits = fits,
    .build = build,
};
