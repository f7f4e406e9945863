#include "comm/core/neighborhood.h"

#include "base/memory.h"
#include "base/status.h"
#include "plan/algorithms.h"
#include "plan/topologies/mixing.h"

#include <math.h>
#include <stdlib.h>

/* Weights nearer to 1 / (sources + 1) than this count as equal to it. */
static const double SAME = 1e-9;

static int by_rank(const void *a, const void *b) {
    const rp_neighbor *left = a, *right = b;
    return (left->rank > right->rank) - (left->rank < right->rank);
}

/* ---- making ---- */

static rp_status check_neighbor(const rp_neighbor *neighbor, int rank, int world,
                                const char *what) {
    if (neighbor->rank < 0 || neighbor->rank >= world)
        return RP_FAIL(INVALID,
                       "neighbor-all-reduce: there is no rank %d to be a %s; 0 to %d "
                       "are in this world",
                       neighbor->rank, what, world - 1);
    if (neighbor->rank == rank)
        return RP_FAIL(INVALID,
                       "neighbor-all-reduce: rank %d names itself as a %s; what it keeps of "
                       "its own vector is self_weight",
                       rank, what);
    if (!isfinite(neighbor->weight))
        return RP_FAIL(INVALID, "neighbor-all-reduce: the weight of %s %d is %g", what,
                       neighbor->rank, neighbor->weight);
    return RP_OK;
}

/* Copied to `into`, by rank. */
static rp_status take_list(const rp_neighbor *list, size_t count, int rank, int world,
                           const char *what, rp_neighbor *into) {
    for (size_t i = 0; i < count; i++) {
        RP_TRY(check_neighbor(&list[i], rank, world, what));
        into[i] = list[i];
    }
    qsort(into, count, sizeof *into, by_rank);
    for (size_t i = 1; i < count; i++)
        if (into[i].rank == into[i - 1].rank)
            return RP_FAIL(INVALID, "neighbor-all-reduce: rank %d is named twice as a %s",
                           into[i].rank, what);
    return RP_OK;
}

static rp_status check_lists(const rp_neighbors *n, int world) {
    if (!n) return RP_FAIL(INVALID, "neighbor-all-reduce: neighbors is NULL");
    if ((n->source_count && !n->sources) || (n->destination_count && !n->destinations))
        return RP_FAIL(INVALID,
                       "neighbor-all-reduce: there are %zu sources and %zu destinations, and "
                       "no list of them",
                       n->source_count, n->destination_count);
    size_t most = (size_t)world - 1;
    if (n->source_count > most || n->destination_count > most)
        return RP_FAIL(INVALID,
                       "neighbor-all-reduce: %zu sources and %zu destinations; a rank has %zu "
                       "others at most",
                       n->source_count, n->destination_count, most);
    if (!isfinite(n->self_weight))
        return RP_FAIL(INVALID, "neighbor-all-reduce: self_weight is %g", n->self_weight);
    return RP_OK;
}

/* This rank, between its sources by rank. */
static void insert_self(rpi_neighborhood *neighborhood, rp_neighbor self) {
    int place = neighborhood->sources;
    for (; place > 0 && neighborhood->places[place - 1].rank > self.rank; place--)
        neighborhood->places[place] = neighborhood->places[place - 1];
    neighborhood->places[place] = self;
    neighborhood->self = place;
}

static bool all_are(const rpi_neighborhood *neighborhood, double weight) {
    for (int i = 0; i <= neighborhood->sources; i++)
        if (fabs(neighborhood->places[i].weight - weight) > SAME * weight) return false;
    return true;
}

rp_status rpi_neighborhood_make(rpi_neighborhood *neighborhood, int rank, int world,
                                const rp_neighbors *n) {
    RP_TRY(check_lists(n, world));
    size_t wanted = n->source_count + 1 + n->destination_count;
    if (wanted > neighborhood->room) {
        RP_TRY(rpi_grow_array(neighborhood->room, wanted, sizeof *neighborhood->places,
                              "neighbours", &neighborhood->places));
        neighborhood->room = wanted;
    }
    RP_TRY(take_list(n->sources, n->source_count, rank, world, "source", neighborhood->places));
    neighborhood->sources = (int)n->source_count;
    neighborhood->destinations = (int)n->destination_count;
    insert_self(neighborhood, (rp_neighbor){.rank = rank, .weight = n->self_weight});
    neighborhood->divides = all_are(neighborhood, 1.0 / (neighborhood->sources + 1));
    return take_list(n->destinations, n->destination_count, rank, world, "destination",
                     neighborhood->places + neighborhood->sources + 1);
}

void rpi_neighborhood_free(rpi_neighborhood *neighborhood) {
    rpi_free(neighborhood->places);
    *neighborhood = (rpi_neighborhood){0};
}

/* ---- finding ---- */

static int find(const rpi_neighborhood *neighborhood, int first, int count, int rank) {
    if (!count) return -1;
    const rp_neighbor key = {.rank = rank};
    const rp_neighbor *found =
        bsearch(&key, neighborhood->places + first, (size_t)count, sizeof key, by_rank);
    return found ? (int)(found - neighborhood->places) : -1;
}

int rpi_neighborhood_source(const rpi_neighborhood *neighborhood, int rank) {
    int place = find(neighborhood, 0, neighborhood->sources + 1, rank);
    return place == neighborhood->self ? -1 : place;
}

int rpi_neighborhood_destination(const rpi_neighborhood *neighborhood, int rank) {
    return find(neighborhood, neighborhood->sources + 1, neighborhood->destinations, rank);
}

/* ---- its schedule ---- */

/* The round from the view of this rank: only its own row and column. */
typedef struct view {
    rpi_mixing mixing;
    rpi_edge *edges; /* sources, own, destinations */
    int *first;      /* three lists of the first edge of each place */
} view;

/* Place `self` has `count` edges, the others none. */
static int *write_first(int *first, int places, int self, int count) {
    for (int i = 0; i <= places; i++) first[i] = i <= self ? 0 : count;
    return first + places + 1;
}

/* The weight that this rank gives a place: the call's weight for it, unless all places have the
 * same. */
static rpi_fraction weight_of(const rpi_neighborhood *neighborhood, int place) {
    if (neighborhood->divides) return (rpi_fraction){1, neighborhood->sources + 1};
    return rpi_weight_of_call(place);
}

static void write_view(const rpi_neighborhood *neighborhood, view *v) {
    int places = neighborhood->sources + 1 + neighborhood->destinations, used = 0;
    v->mixing = (rpi_mixing){.ranks = places, .vectors = 1};
    v->mixing.in = v->edges;
    for (int i = 0; i <= neighborhood->sources; i++)
        if (i != neighborhood->self)
            v->edges[used++] = (rpi_edge){.rank = i, .weight = weight_of(neighborhood, i)};
    v->mixing.own = v->edges + used;
    v->edges[used++] = (rpi_edge){.rank = neighborhood->self,
                                  .weight = weight_of(neighborhood, neighborhood->self)};
    v->mixing.out = v->edges + used;
    for (int i = neighborhood->sources + 1; i < places; i++)
        v->edges[used++] = (rpi_edge){.rank = i};
    int *first = v->first;
    v->mixing.in_first = first;
    first = write_first(first, places, neighborhood->self, neighborhood->sources);
    v->mixing.own_first = first;
    first = write_first(first, places, neighborhood->self, 1);
    v->mixing.out_first = first;
    write_first(first, places, neighborhood->self, neighborhood->destinations);
}

bool rpi_neighborhood_fits(const rpi_neighborhood *neighborhood, bool device,
                           const rpi_compiled_schedule *compiled) {
    const rpi_schedule *schedule = &compiled->schedule;
    return schedule->algorithm == &rpi_algorithm_neighbour_all_reduce &&
           schedule->world == neighborhood->sources + 1 + neighborhood->destinations &&
           schedule->rank == neighborhood->self && compiled->sources == neighborhood->sources &&
           compiled->divides == neighborhood->divides && compiled->device == device;
}

rp_status rpi_neighborhood_compiled_schedule(const rpi_neighborhood *neighborhood, bool device,
                                             rpi_compiled_schedule **out_compiled) {
    int places = neighborhood->sources + 1 + neighborhood->destinations;
    view v = {.edges = NULL};
    rp_status status =
        rpi_alloc_array((size_t)places, sizeof *v.edges, "a neighbourhood", &v.edges);
    if (status == RP_OK)
        status = rpi_alloc_array(3 * ((size_t)places + 1), sizeof *v.first, "a neighbourhood",
                                 &v.first);
    if (status == RP_OK) {
        write_view(neighborhood, &v);
        rpi_plan_request request = {
            .world = places, .rank = neighborhood->self, .mixing = &v.mixing};
        status = rpi_schedule_compile(&rpi_algorithm_neighbour_all_reduce, &request, false,
                                      device, out_compiled);
    }
    rpi_free(v.edges);
    rpi_free(v.first);
    if (status != RP_OK) return status;
    (*out_compiled)->sources = neighborhood->sources;
    (*out_compiled)->divides = neighborhood->divides;
    return RP_OK;
}

/* ---- in words ---- */

enum { NAMED = 8 }; /* ranks of a list, before "and 3 more" */

static size_t list_text(const rpi_neighborhood *neighborhood, int first, int count, char *text,
                        size_t bytes) {
    int total = 0, shown = 0;
    for (int i = 0; i < count; i++) total += first + i != neighborhood->self;
    if (!total) return (size_t)snprintf(text, bytes, "none");
    size_t length = (size_t)snprintf(text, bytes, total == 1 ? "rank" : "ranks");
    for (int i = 0; i < count && shown < NAMED && length < bytes; i++) {
        if (first + i == neighborhood->self) continue;
        const char *between = !shown ? " " : shown == total - 1 ? " and " : ", ";
        shown++;
        length += (size_t)snprintf(text + length, bytes - length, "%s%d", between,
                                   neighborhood->places[first + i].rank);
    }
    if (shown < total && length < bytes)
        length +=
            (size_t)snprintf(text + length, bytes - length, " and %d more", total - shown);
    return length;
}

const char *rpi_neighborhood_text(const rpi_neighborhood *neighborhood, char *text,
                                  size_t bytes) {
    char from[96], to[96];
    list_text(neighborhood, 0, neighborhood->sources + 1, from, sizeof from);
    list_text(neighborhood, neighborhood->sources + 1, neighborhood->destinations, to,
              sizeof to);
    snprintf(text, bytes, "expects vectors from %s and sends to %s", from, to);
    return text;
}
