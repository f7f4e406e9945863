#include "plan/topologies/topology_product.h"

#include "base/memory.h"
#include "plan/rational.h"

#include <math.h>
#include <string.h>

/* ---- doubles ---- */

static double *row(double *matrix, int size, int index) {
    return matrix + (size_t)index * (size_t)size;
}

rp_status rpi_product_open(const rpi_topology *topology, rpi_product *out_product) {
    size_t size = (size_t)topology->ranks * (size_t)topology->vectors;
    rpi_product made = {.size = (int)size};
    RP_TRY(rpi_alloc_array(size * size, sizeof(double), "a product of rounds", &made.at));
    rp_status status =
        rpi_alloc_array(size * size, sizeof(double), "a product of rounds", &made.next);
    if (status != RP_OK) {
        rpi_product_close(&made);
        return status;
    }
    for (size_t i = 0; i < size; i++) made.at[i * size + i] = 1;
    *out_product = made;
    return RP_OK;
}

void rpi_product_close(rpi_product *product) {
    rpi_free(product->at);
    rpi_free(product->next);
    *product = (rpi_product){0};
}

static void add_rows(rpi_product *product, const rpi_mixing *mixing, int rank,
                     rpi_edges edges) {
    int size = product->size;
    for (int e = 0; e < edges.count; e++) {
        const rpi_edge *edge = &edges.list[e];
        double weight = rpi_edge_weight(edge);
        double *into = row(product->next, size, rank * mixing->vectors + edge->into);
        const double *from = row(product->at, size, edge->rank * mixing->vectors + edge->from);
        for (int i = 0; i < size; i++) into[i] += weight * from[i];
    }
}

void rpi_product_apply(rpi_product *product, const rpi_mixing *mixing) {
    size_t elements = (size_t)product->size * (size_t)product->size;
    memset(product->next, 0, elements * sizeof *product->next);
    for (int rank = 0; rank < mixing->ranks; rank++) {
        add_rows(product, mixing, rank, rpi_mixing_own(mixing, rank));
        add_rows(product, mixing, rank, rpi_mixing_in(mixing, rank));
    }
    double *swapped = product->at;
    product->at = product->next;
    product->next = swapped;
}

bool rpi_product_averages(const rpi_product *product, const rpi_mixing *mixing,
                          double tolerance) {
    int vectors = mixing->vectors;
    for (int i = 0; i < product->size; i += vectors)
        for (int j = 0; j < product->size; j++) {
            double wanted = j % vectors ? 0 : 1.0 / mixing->ranks;
            if (fabs(row(product->at, product->size, i)[j] - wanted) > tolerance) return false;
        }
    return true;
}

/* square = matrix * matrix */
static void multiply(const double *matrix, int size, double *square) {
    memset(square, 0, (size_t)size * (size_t)size * sizeof *square);
    for (int i = 0; i < size; i++)
        for (int k = 0; k < size; k++) {
            double factor = matrix[(size_t)i * (size_t)size + (size_t)k];
            const double *from = matrix + (size_t)k * (size_t)size;
            double *into = row(square, size, i);
            for (int j = 0; j < size; j++) into[j] += factor * from[j];
        }
}

/* The matrix over its Frobenius norm, which is returned. What vanishes becomes 0: products of
 * denormal numbers are slow. */
static double normalise(double *matrix, size_t elements) {
    static const double nothing = 1e-150;
    double sum = 0;
    for (size_t i = 0; i < elements; i++) sum += matrix[i] * matrix[i];
    double norm = sqrt(sum);
    for (size_t i = 0; i < elements && norm > 0; i++)
        matrix[i] = fabs(matrix[i]) < nothing * norm ? 0 : matrix[i] / norm;
    return norm;
}

/* log of the limit of |A^m|^(1/m), m = 2^k, by the growth from m to 2m; -INFINITY: A^m is 0. */
static double log_radius(double *a, double *square, int size) {
    enum { SQUARINGS = 48 };
    size_t elements = (size_t)size * (size_t)size;
    double norm = normalise(a, elements), log_norm = log(norm), before = 0;
    for (int k = 0; k < SQUARINGS && norm > 0; k++) {
        double power = ldexp(1, k), log_before = log_norm;
        multiply(a, size, square);
        double *swapped = a;
        a = square;
        square = swapped;
        norm = normalise(a, elements);
        log_norm = 2 * log_norm + log(norm);
        double growth = (log_norm - log_before) / power;
        if (k > 8 && fabs(growth - before) < 1e-12) return growth;
        before = growth;
    }
    return norm > 0 ? before : -INFINITY;
}

double rpi_matrix_radius(double *matrix, double *scratch, int size) {
    return exp(log_radius(matrix, scratch, size));
}

rp_status rpi_product_second(const rpi_product *product, double *out_second) {
    rpi_product copy = {.size = product->size};
    size_t elements = (size_t)product->size * (size_t)product->size;
    RP_TRY(rpi_alloc_array(elements, sizeof(double), "a product of rounds", &copy.at));
    rp_status status =
        rpi_alloc_array(elements, sizeof(double), "a product of rounds", &copy.next);
    if (status == RP_OK) {
        for (size_t i = 0; i < elements; i++) copy.at[i] = product->at[i] - 1.0 / product->size;
        *out_second = rpi_matrix_radius(copy.at, copy.next, copy.size);
    }
    rpi_product_close(&copy);
    return status;
}

/* ---- rationals: columns are the vectors 0 alone, since that is what a rank starts with ----
 */

typedef struct exact {
    int ranks, vectors;
    rpi_rational *at, *next; /* [ranks * vectors][ranks] */
} exact;

static rpi_rational *exact_row(const exact *e, rpi_rational *matrix, int rank, int vector) {
    return matrix + ((size_t)rank * (size_t)e->vectors + (size_t)vector) * (size_t)e->ranks;
}

static size_t elements_of(const exact *e) {
    return (size_t)e->ranks * (size_t)e->vectors * (size_t)e->ranks;
}

static bool add_exact_rows(exact *e, int rank, rpi_edges edges) {
    for (int k = 0; k < edges.count; k++) {
        const rpi_edge *edge = &edges.list[k];
        rpi_rational weight = {edge->weight.times, edge->weight.over}, part;
        rpi_rational *into = exact_row(e, e->next, rank, edge->into);
        const rpi_rational *from = exact_row(e, e->at, edge->rank, edge->from);
        for (int i = 0; i < e->ranks; i++)
            if (from[i].times && (!rpi_rational_multiply(weight, from[i], &part) ||
                                  !rpi_rational_add(into[i], part, &into[i])))
                return false;
    }
    return true;
}

static bool apply_exactly(exact *e, const rpi_mixing *mixing) {
    for (size_t i = 0; i < elements_of(e); i++) e->next[i] = (rpi_rational){0, 1};
    for (int rank = 0; rank < e->ranks; rank++)
        if (!add_exact_rows(e, rank, rpi_mixing_own(mixing, rank)) ||
            !add_exact_rows(e, rank, rpi_mixing_in(mixing, rank)))
            return false;
    rpi_rational *swapped = e->at;
    e->at = e->next;
    e->next = swapped;
    return true;
}

static bool averages_exactly(const exact *e) {
    for (int rank = 0; rank < e->ranks; rank++)
        for (int i = 0; i < e->ranks; i++)
            if (!rpi_rational_same(exact_row(e, e->at, rank, 0)[i],
                                   (rpi_rational){1, e->ranks}))
                return false;
    return true;
}

static rp_status run_exactly(exact *e, const rpi_topology *topology, int64_t rounds,
                             bool *out_fits) {
    rpi_mixing mixing = {0};
    rp_status status = RP_OK;
    RP_TRY(rpi_alloc_array(elements_of(e), sizeof *e->at, "a product of rounds", &e->at));
    RP_TRY(rpi_alloc_array(elements_of(e), sizeof *e->next, "a product of rounds", &e->next));
    for (size_t i = 0; i < elements_of(e); i++) e->at[i] = (rpi_rational){0, 1};
    for (int rank = 0; rank < e->ranks; rank++)
        exact_row(e, e->at, rank, 0)[rank] = (rpi_rational){1, 1};
    *out_fits = true;
    for (int64_t step = 0; step < rounds && *out_fits && status == RP_OK; step++) {
        status = rpi_topology_mix(topology, step, &mixing);
        if (status == RP_OK) *out_fits = apply_exactly(e, &mixing);
    }
    rpi_mixing_free(&mixing);
    return status;
}

rp_status rpi_topology_averages(const rpi_topology *topology, int64_t rounds,
                                bool *out_averages, bool *out_fits) {
    exact e = {.ranks = topology->ranks, .vectors = topology->vectors};
    rp_status status = run_exactly(&e, topology, rounds, out_fits);
    if (status == RP_OK) *out_averages = *out_fits && averages_exactly(&e);
    rpi_free(e.at);
    rpi_free(e.next);
    return status;
}
