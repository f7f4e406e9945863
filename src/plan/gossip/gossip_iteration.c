#include "plan/gossip/gossip_iteration.h"

#include "base/memory.h"
#include "base/rng.h"
#include "plan/topologies/topology_product.h"

#include <math.h>
#include <string.h>

/* Every vector is `columns` wide: one of them for each start that is followed. */
typedef struct iteration {
    const rpi_gossip_rule *rule;
    const rpi_topology *topology;
    double step, gamma;
    int parts;   /* of a rank, that go from step to step: x and the states */
    int columns; /* starts */
    int64_t rounds;
    rpi_mixing mixing;
    double *at; /* [ranks][RPI_GOSSIP_SLOTS][columns] */
    double *p, *next_p;
} iteration;

/* ---- one step ---- */

static double *place(const iteration *it, int rank, int slot) {
    size_t vector = (size_t)rank * RPI_GOSSIP_SLOTS + (size_t)slot;
    return it->at + vector * (size_t)it->columns;
}

/* The vector of a rank that goes on: x, or a state. */
static double *part(const iteration *it, int rank, int which) {
    return place(it, rank, which ? RPI_GOSSIP_STATE + which - 1 : RPI_GOSSIP_X);
}

static void run_lines(const iteration *it, const rpi_gossip_line lines[RPI_GOSSIP_LINES]) {
    double *slots[RPI_GOSSIP_SLOTS];
    for (int rank = 0; rank < it->topology->ranks; rank++) {
        rpi_gossip_numbers n = {.rate = 1, .p = it->p[rank], .gamma = it->gamma};
        for (int k = 0; k < RPI_GOSSIP_SLOTS; k++) slots[k] = place(it, rank, k);
        rpi_gossip_lines_f64(lines, &n, (size_t)it->columns, slots);
    }
}

static void set_gradients(const iteration *it) {
    for (int rank = 0; rank < it->topology->ranks; rank++) {
        const double *x = place(it, rank, RPI_GOSSIP_X);
        double *gradient = place(it, rank, RPI_GOSSIP_GRADIENT);
        for (int i = 0; i < it->columns; i++) gradient[i] = it->step * x[i];
    }
}

static void mix_edges(const iteration *it, int rank, rpi_edges edges, int vector) {
    double *into = place(it, rank, RPI_GOSSIP_MIXED + vector);
    for (int e = 0; e < edges.count; e++) {
        double weight = rpi_edge_weight(&edges.list[e]);
        const double *from = place(it, edges.list[e].rank, RPI_GOSSIP_SENT + vector);
        for (int i = 0; i < it->columns; i++) into[i] += weight * from[i];
    }
}

static void mix_vectors(const iteration *it) {
    for (int rank = 0; rank < it->topology->ranks; rank++)
        for (int v = 0; v < it->rule->sends; v++) {
            memset(place(it, rank, RPI_GOSSIP_MIXED + v), 0,
                   (size_t)it->columns * sizeof(double));
            rpi_edges own = rpi_mixing_own(&it->mixing, rank);
            mix_edges(it, rank, own, v);
            mix_edges(it, rank, rpi_mixing_in(&it->mixing, rank), v);
        }
}

static void mix_push_weights(iteration *it) {
    for (int rank = 0; rank < it->topology->ranks; rank++) {
        rpi_edges in = rpi_mixing_in(&it->mixing, rank);
        double sum = rpi_edge_weight(rpi_mixing_own(&it->mixing, rank).list) * it->p[rank];
        for (int e = 0; e < in.count; e++)
            sum += rpi_edge_weight(&in.list[e]) * it->p[in.list[e].rank];
        it->next_p[rank] = sum;
    }
    double *swapped = it->p;
    it->p = it->next_p;
    it->next_p = swapped;
}

/* One that stays the same is made once. */
static rp_status make_round(iteration *it, int64_t round) {
    if (it->rounds == 1 && it->mixing.in_first) return RP_OK;
    return rpi_topology_mix(it->topology, round, &it->mixing);
}

static rp_status take_step(iteration *it, int64_t round) {
    RP_TRY(make_round(it, round));
    set_gradients(it);
    run_lines(it, it->rule->before);
    mix_vectors(it);
    if (it->rule->pushes) mix_push_weights(it);
    run_lines(it, it->rule->after);
    return RP_OK;
}

static rp_status take_period(iteration *it) {
    for (int64_t round = 0; round < it->rounds; round++) RP_TRY(take_step(it, round));
    return RP_OK;
}

/* What pushed weights become: those that the period leaves as they are. */
static rp_status settle_push_weights(iteration *it) {
    enum { STEPS = 1024 };
    for (int64_t steps = 0; it->rule->pushes && steps < STEPS; steps += it->rounds)
        for (int64_t round = 0; round < it->rounds; round++) {
            RP_TRY(make_round(it, round));
            mix_push_weights(it);
        }
    return RP_OK;
}

/* ---- what ranks differ by ---- */

/* Only that: the mean over ranks goes. Of a pushing rule gradients mix both, and all is looked
 * at. */
static bool keeps_apart(const iteration *it) {
    return !it->rule->pushes || it->step == 0;
}

static void take_mean_away(const iteration *it) {
    int ranks = it->topology->ranks;
    if (!keeps_apart(it)) return;
    for (int which = 0; which < it->parts; which++)
        for (int i = 0; i < it->columns; i++) {
            double mean = 0;
            for (int rank = 0; rank < ranks; rank++) mean += part(it, rank, which)[i] / ranks;
            for (int rank = 0; rank < ranks; rank++) part(it, rank, which)[i] -= mean;
        }
}

/* All ranks' parts are 0. */
static void clear(const iteration *it) {
    for (int rank = 0; rank < it->topology->ranks; rank++)
        for (int which = 0; which < it->parts; which++)
            memset(part(it, rank, which), 0, (size_t)it->columns * sizeof(double));
}

/* As a run does: states from x and its gradient. */
static void begin(const iteration *it) {
    set_gradients(it);
    run_lines(it, it->rule->begin);
    take_mean_away(it);
}

/* Row by row: rank after rank, its parts. */
static void write_matrix(const iteration *it, double *matrix) {
    for (int rank = 0; rank < it->topology->ranks; rank++)
        for (int which = 0; which < it->parts; which++) {
            memcpy(matrix, part(it, rank, which), (size_t)it->columns * sizeof *matrix);
            matrix += it->columns;
        }
}

/* ---- by the matrix of a period ---- */

/* An orthonormal basis of all that a run can come to from its begin: what states have in common
 * by the rule's own equations stays so, and is no part of it. */
typedef struct reached {
    int size, count;
    double *basis;  /* [count][size] */
    double *vector; /* [size] scratch */
} reached;

static double product_of(const double *a, const double *b, int size) {
    double sum = 0;
    for (int i = 0; i < size; i++) sum += a[i] * b[i];
    return sum;
}

/* The scratch vector, unless it is within `nothing` of the basis. */
static void reach(reached *r, double nothing) {
    int size = r->size;
    for (int turn = 0; turn < 2; turn++)
        for (int k = 0; k < r->count; k++) {
            const double *other = r->basis + (size_t)k * (size_t)size;
            double share = product_of(other, r->vector, size);
            for (int i = 0; i < size; i++) r->vector[i] -= share * other[i];
        }
    double norm = sqrt(product_of(r->vector, r->vector, size));
    if (!(norm > nothing) || r->count == size) return;
    double *next = r->basis + (size_t)r->count++ * (size_t)size;
    for (int i = 0; i < size; i++) next[i] = r->vector[i] / norm;
}

static void apply(const reached *r, const double *matrix, const double *from) {
    for (int i = 0; i < r->size; i++)
        r->vector[i] = product_of(matrix + (size_t)i * (size_t)r->size, from, r->size);
}

/* From the starts, columns of [size][size] of which the first ones count, on. */
static void reach_all(reached *r, const double *matrix, const double *starts, int count) {
    size_t size = (size_t)r->size;
    double norm = sqrt(product_of(matrix, matrix, r->size * r->size));
    for (int start = 0; start < count; start++) {
        for (size_t i = 0; i < size; i++) r->vector[i] = starts[i * size + (size_t)start];
        reach(r, 1e-9);
    }
    for (int k = 0; k < r->count; k++) {
        apply(r, matrix, r->basis + (size_t)k * size);
        reach(r, 1e-10 * norm + 1e-18);
    }
}

/* What the matrix does in the basis. */
static void project(const reached *r, const double *matrix, double *out_small) {
    for (int k = 0; k < r->count; k++) {
        apply(r, matrix, r->basis + (size_t)k * (size_t)r->size);
        for (int i = 0; i < r->count; i++)
            out_small[(size_t)i * (size_t)r->count + (size_t)k] =
                product_of(r->basis + (size_t)i * (size_t)r->size, r->vector, r->size);
    }
}

static rp_status make_matrix(iteration *it, double *starts, double *matrix) {
    for (int rank = 0; rank < it->topology->ranks; rank++) part(it, rank, 0)[rank] = 1;
    begin(it);
    write_matrix(it, starts);
    clear(it);
    for (int rank = 0; rank < it->topology->ranks; rank++)
        for (int which = 0; which < it->parts; which++)
            part(it, rank, which)[rank * it->parts + which] = 1;
    take_mean_away(it);
    RP_TRY(take_period(it));
    take_mean_away(it);
    write_matrix(it, matrix);
    return RP_OK;
}

static rp_status radius_of_matrix(iteration *it, double *out_radius) {
    double *all = NULL;
    size_t size = (size_t)it->columns, elements = size * size;
    RP_TRY(rpi_alloc_array(4 * elements + size, sizeof *all, "an iteration", &all));
    double *matrix = all, *starts = all + elements, *small = all + 2 * elements;
    reached r = {
        .size = it->columns, .basis = all + 3 * elements, .vector = all + 4 * elements};
    rp_status status = make_matrix(it, starts, matrix);
    if (status == RP_OK) {
        reach_all(&r, matrix, starts, it->topology->ranks);
        project(&r, matrix, small);
        double radius = r.count ? rpi_matrix_radius(small, starts, r.count) : 0;
        *out_radius = pow(radius, 1.0 / (double)it->rounds);
    }
    rpi_free(all);
    return status;
}

/* ---- of many ranks: what becomes of random starts ---- */

/* Their length, which becomes 1. */
static double normalise(const iteration *it) {
    double sum = 0;
    for (int rank = 0; rank < it->topology->ranks; rank++)
        for (int which = 0; which < it->parts; which++)
            for (int i = 0; i < it->columns; i++) {
                double value = part(it, rank, which)[i];
                sum += value * value;
            }
    double norm = sqrt(sum), factor = norm > 0 ? 1 / norm : 0;
    for (int rank = 0; rank < it->topology->ranks; rank++)
        for (int which = 0; which < it->parts; which++)
            for (int i = 0; i < it->columns; i++) part(it, rank, which)[i] *= factor;
    return norm;
}

static void draw_starts(const iteration *it) {
    rpi_rng rng = rpi_rng_make(1, RPI_RNG_SYNTHETIC, 0);
    for (int rank = 0; rank < it->topology->ranks; rank++)
        for (int i = 0; i < it->columns; i++)
            part(it, rank, 0)[i] = (double)rpi_rng_normal(&rng);
    take_mean_away(it);
    begin(it);
}

/* So many that a large world takes a second at most. */
static int64_t periods_of(const iteration *it) {
    enum { STEPS = 1024, WORK = 1 << 24 };
    int64_t edges = it->mixing.in_first[it->topology->ranks] + it->topology->ranks;
    int64_t steps = edges * STEPS < WORK ? STEPS : WORK / edges;
    return steps / it->rounds > 4 ? steps / it->rounds : 4;
}

/* By the second half of the way, in which the largest eigenvalue has the others behind it; by
 * all of it where nothing is left but rounding. */
static rp_status radius_of_starts(iteration *it, double *out_radius) {
    const double nothing = log(1e-12);
    double all = 0, half = 0;
    RP_TRY(make_round(it, 0));
    int64_t periods = periods_of(it), done = 0;
    draw_starts(it);
    (void)normalise(it);
    const int64_t first = periods / 2; /* that counts */
    for (; done < periods && all > nothing; done++) {
        RP_TRY(take_period(it));
        take_mean_away(it);
        double growth = log(normalise(it));
        all += growth;
        if (done >= first) half += growth;
    }
    double counted = done < periods ? all / (double)done : half / (double)(periods - first);
    *out_radius = exp(counted / (double)it->rounds);
    return RP_OK;
}

/* ---- */

static rp_status prepare(iteration *it) {
    enum { STARTS = 2 };
    int ranks = it->topology->ranks, size = ranks * it->parts;
    it->rounds = it->topology->period ? it->topology->period : RPI_ITERATION_DRAWN;
    if (it->rounds > 1024) it->rounds = 1024;
    it->columns = size <= RPI_ITERATION_DENSE ? size : STARTS;
    RP_TRY(rpi_alloc_array((size_t)ranks * RPI_GOSSIP_SLOTS * (size_t)it->columns,
                           sizeof *it->at, "an iteration", &it->at));
    RP_TRY(rpi_alloc_array((size_t)ranks, sizeof *it->p, "an iteration", &it->p));
    RP_TRY(rpi_alloc_array((size_t)ranks, sizeof *it->p, "an iteration", &it->next_p));
    for (int rank = 0; rank < ranks; rank++) it->p[rank] = 1;
    return settle_push_weights(it);
}

rp_status rpi_gossip_radius(const rpi_gossip_rule *rule, const rpi_topology *topology,
                            double step, double gamma, double *out_radius) {
    iteration it = {.rule = rule,
                    .topology = topology,
                    .step = step,
                    .gamma = gamma,
                    .parts = 1 + rule->states};
    rp_status status = prepare(&it);
    if (status == RP_OK)
        status = it.columns == topology->ranks * it.parts ? radius_of_matrix(&it, out_radius)
                                                          : radius_of_starts(&it, out_radius);
    rpi_mixing_free(&it.mixing);
    rpi_free(it.at);
    rpi_free(it.p);
    rpi_free(it.next_p);
    return status;
}
