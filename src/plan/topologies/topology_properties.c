#include "plan/topologies/topology_properties.h"

#include "base/memory.h"
#include "plan/rational.h"
#include "plan/topologies/topology_product.h"

#include <math.h>

/* ---- sums ---- */

static bool add_edges(rpi_rational *rows, rpi_rational *columns, int vectors, int rank,
                      rpi_edges edges, bool own) {
    for (int e = 0; e < edges.count; e++) {
        const rpi_edge *edge = &edges.list[e];
        rpi_rational weight = {edge->weight.times, edge->weight.over};
        rpi_rational *of_row = &rows[rank * vectors + edge->into];
        rpi_rational *of_column = &columns[(own ? rank : edge->rank) * vectors + edge->from];
        if (!rpi_rational_add(*of_row, weight, of_row) ||
            !rpi_rational_add(*of_column, weight, of_column))
            return false;
    }
    return true;
}

static bool are_one(const rpi_rational *sums, int count) {
    for (int i = 0; i < count; i++)
        if (!rpi_rational_same(sums[i], (rpi_rational){1, 1})) return false;
    return true;
}

rp_status rpi_mixing_sums(const rpi_mixing *mixing, bool *out_rows, bool *out_columns) {
    int count = mixing->ranks * mixing->vectors;
    rpi_rational *sums = NULL;
    RP_TRY(rpi_alloc_array(2 * (size_t)count, sizeof *sums, "sums of weights", &sums));
    for (int i = 0; i < 2 * count; i++) sums[i] = (rpi_rational){0, 1};
    bool fit = true;
    for (int rank = 0; rank < mixing->ranks && fit; rank++)
        fit = add_edges(sums, sums + count, mixing->vectors, rank, rpi_mixing_in(mixing, rank),
                        false) &&
              add_edges(sums, sums + count, mixing->vectors, rank, rpi_mixing_own(mixing, rank),
                        true);
    *out_rows = fit && are_one(sums, count);
    *out_columns = fit && are_one(sums + count, count);
    rpi_free(sums);
    return RP_OK;
}

static bool has_mirror(const rpi_mixing *mixing, int rank, const rpi_edge *edge) {
    rpi_edges back = rpi_mixing_out(mixing, rank);
    for (int e = 0; e < back.count; e++)
        if (back.list[e].rank == edge->rank)
            return back.list[e].weight.times == edge->weight.times &&
                   back.list[e].weight.over == edge->weight.over;
    return false;
}

static bool is_symmetric(const rpi_mixing *mixing) {
    if (mixing->vectors != 1) return false;
    for (int rank = 0; rank < mixing->ranks; rank++) {
        rpi_edges in = rpi_mixing_in(mixing, rank);
        if (in.count != rpi_mixing_out(mixing, rank).count) return false;
        for (int e = 0; e < in.count; e++)
            if (!has_mirror(mixing, rank, &in.list[e])) return false;
    }
    return true;
}

/* ---- who hears of whom ---- */

typedef struct reach {
    bool *ever, *now, *next; /* [ranks] */
    int ranks;
} reach;

static bool keeps(const rpi_mixing *mixing, int rank) {
    rpi_edges own = rpi_mixing_own(mixing, rank);
    for (int e = 0; e < own.count; e++)
        if (own.list[e].weight.times) return true;
    return false;
}

/* Who knows after this round, or who is heard of from here on where time runs backward. */
static void pass_on(reach *r, const rpi_mixing *mixing, bool backward) {
    for (int rank = 0; rank < r->ranks; rank++) {
        rpi_edges edges = backward ? rpi_mixing_out(mixing, rank) : rpi_mixing_in(mixing, rank);
        r->next[rank] = r->now[rank] && keeps(mixing, rank);
        for (int e = 0; e < edges.count && !r->next[rank]; e++)
            r->next[rank] = r->now[edges.list[e].rank];
    }
    bool *swapped = r->now;
    r->now = r->next;
    r->next = swapped;
}

/* One time through all rounds from everybody who was ever reached; how many are new? */
static rp_status pass_period(reach *r, const rpi_topology *topology, int64_t rounds,
                             bool backward, rpi_mixing *mixing, int *out_new) {
    *out_new = 0;
    for (int rank = 0; rank < r->ranks; rank++) r->now[rank] = r->ever[rank];
    for (int64_t i = 0; i < rounds; i++) {
        if (rounds > 1 || !mixing->in)
            RP_TRY(rpi_topology_mix(topology, backward ? rounds - 1 - i : i, mixing));
        pass_on(r, mixing, backward);
    }
    for (int rank = 0; rank < r->ranks; rank++)
        if (r->now[rank] && !r->ever[rank]) {
            r->ever[rank] = true;
            ++*out_new;
        }
    return RP_OK;
}

/* *out_missing: a rank that rank 0 never reaches, or that never reaches rank 0; -1: none. */
static rp_status reach_all(const rpi_topology *topology, int64_t rounds, bool backward,
                           int *out_missing) {
    reach r = {.ranks = topology->ranks};
    rpi_mixing mixing = {0};
    bool *places = NULL;
    size_t ranks = (size_t)topology->ranks;
    RP_TRY(rpi_alloc_array(3 * ranks, sizeof *places, "ranks to reach", &places));
    r.ever = places;
    r.now = places + ranks;
    r.next = places + 2 * ranks;
    r.ever[0] = true;
    int new = 1;
    rp_status status = RP_OK;
    while (new &&status == RP_OK)
        status = pass_period(&r, topology, rounds, backward, &mixing, &new);
    *out_missing = -1;
    for (int rank = topology->ranks - 1; rank > 0; rank--)
        if (!r.ever[rank]) *out_missing = rank;
    rpi_mixing_free(&mixing);
    rpi_free(places);
    return status;
}

rp_status rpi_topology_connects(const rpi_topology *topology, int64_t rounds,
                                bool *out_connected, int *out_from, int *out_to) {
    int deaf = -1, unheard = -1;
    RP_TRY(reach_all(topology, rounds, false, &deaf));
    if (deaf < 0) RP_TRY(reach_all(topology, rounds, true, &unheard));
    *out_connected = deaf < 0 && unheard < 0;
    if (out_from) *out_from = deaf >= 0 ? 0 : unheard;
    if (out_to) *out_to = deaf >= 0 ? deaf : 0;
    return RP_OK;
}

/* ---- all of it ---- */

int64_t rpi_topology_rounds(const rpi_topology *topology) {
    if (!topology->period) return RPI_PROPERTIES_DRAWN;
    return topology->period < RPI_PROPERTIES_ROUNDS ? topology->period : RPI_PROPERTIES_ROUNDS;
}

static rp_status look_at_round(const rpi_mixing *mixing, int64_t *sent,
                               rpi_topology_properties *p) {
    bool rows, columns;
    RP_TRY(rpi_mixing_sums(mixing, &rows, &columns));
    p->rows = p->rows && rows;
    p->columns = p->columns && columns;
    p->symmetric = p->symmetric && is_symmetric(mixing);
    for (int rank = 0; rank < mixing->ranks; rank++) {
        int in = rpi_edges_ranks(rpi_mixing_in(mixing, rank));
        int out = rpi_edges_ranks(rpi_mixing_out(mixing, rank));
        if (in > p->most_in) p->most_in = in;
        if (out > p->most_out) p->most_out = out;
        sent[rank] += out;
    }
    return RP_OK;
}

static rp_status look_at_rounds(const rpi_topology *topology, rpi_topology_properties *p) {
    rpi_mixing mixing = {0};
    int64_t *sent = NULL, most = 0;
    RP_TRY(rpi_alloc_array((size_t)topology->ranks, sizeof *sent, "vectors sent", &sent));
    rp_status status = RP_OK;
    for (int64_t step = 0; step < p->rounds && status == RP_OK; step++) {
        status = rpi_topology_mix(topology, step, &mixing);
        if (status == RP_OK) status = look_at_round(&mixing, sent, p);
    }
    for (int rank = 0; rank < topology->ranks; rank++)
        if (sent[rank] > most) most = sent[rank];
    p->mean_out = (double)most / (double)p->rounds;
    rpi_mixing_free(&mixing);
    rpi_free(sent);
    return status;
}

/* The average looks exact after so many rounds: is it? */
static rp_status prove_exact(const rpi_topology *topology, int64_t rounds,
                             rpi_topology_properties *p) {
    bool averages = false, fits = false;
    RP_TRY(rpi_topology_averages(topology, rounds, &averages, &fits));
    if (averages || !fits) p->exact_rounds = (int)rounds;
    p->exact_proved = averages;
    return RP_OK;
}

/* The second eigenvalue of the product of the rounds looked at, where sums make it mean
 * something. */
static rp_status find_second(const rpi_product *product, rpi_topology_properties *p) {
    if (!p->rows && !p->columns) return RP_OK;
    if (!p->exact_proved) return rpi_product_second(product, &p->second);
    p->second = 0;
    return RP_OK;
}

static rp_status multiply_rounds(const rpi_topology *topology, rpi_product *product,
                                 rpi_topology_properties *p) {
    rpi_mixing mixing = {0};
    rp_status status = RP_OK;
    int64_t least = p->rounds < RPI_PROPERTIES_EXACT ? RPI_PROPERTIES_EXACT : p->rounds;
    for (int64_t step = 0; step < least && status == RP_OK; step++) {
        if (p->exact_rounds && step >= p->rounds) break;
        status = rpi_topology_mix(topology, step, &mixing);
        if (status != RP_OK) break;
        rpi_product_apply(product, &mixing);
        if (!p->exact_rounds && rpi_product_averages(product, &mixing, 1e-9))
            status = prove_exact(topology, step + 1, p);
        if (status == RP_OK && step + 1 == p->rounds) status = find_second(product, p);
    }
    rpi_mixing_free(&mixing);
    return status;
}

static rp_status examine_product(const rpi_topology *topology, rpi_topology_properties *p) {
    rpi_product product = {0};
    RP_TRY(rpi_product_open(topology, &product));
    rp_status status = multiply_rounds(topology, &product, p);
    p->factor = p->second > 0 ? pow(p->second, 1.0 / (double)p->rounds) : p->second;
    rpi_product_close(&product);
    return status;
}

rp_status rpi_topology_examine(const rpi_topology *topology,
                               rpi_topology_properties *out_properties) {
    rpi_topology_properties p = {.rounds = rpi_topology_rounds(topology),
                                 .rows = true,
                                 .columns = true,
                                 .symmetric = true,
                                 .second = NAN,
                                 .factor = NAN};
    p.whole_period = p.rounds == topology->period;
    RP_TRY(look_at_rounds(topology, &p));
    RP_TRY(rpi_topology_connects(topology, p.rounds, &p.connected, NULL, NULL));
    if (topology->ranks <= RPI_PROPERTIES_RANKS) RP_TRY(examine_product(topology, &p));
    *out_properties = p;
    return RP_OK;
}
