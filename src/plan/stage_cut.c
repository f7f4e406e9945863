#include "plan/stage_cut.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* best[k][i]: the first i layers in k parts. A part's costs are a difference of sums. */
typedef struct table {
    int layers, parts;
    double *sums; /* [layers + 1] */
    double *best; /* [parts + 1][layers + 1] */
    int *from;    /* the same: where the last part begins */
} table;

static size_t at(const table *t, int parts, int layers) {
    return (size_t)parts * ((size_t)t->layers + 1) + (size_t)layers;
}

static double cost_of(const table *t, int first, int end) {
    return t->sums[end] - t->sums[first];
}

/* Costs of parts, put together: the greatest, or the sum of squares of such as are no more than
 * `most`. */
typedef double (*together)(double before, double part, double most);

static double greatest(double before, double part, double most) {
    (void)most;
    return fmax(before, part);
}

static double squares(double before, double part, double most) {
    return part <= most ? before + part * part : INFINITY;
}

/* Parts only grow as they begin earlier: what already is too much by itself ends the search. */
static void fill_cell(table *t, int k, int i, together of, double most) {
    double least = INFINITY;
    int from = i - 1;
    for (int j = i - 1; j >= k - 1; j--) {
        double part = cost_of(t, j, i), all = of(t->best[at(t, k - 1, j)], part, most);
        double alone = of(0, part, most);
        if (alone > least || isinf(alone)) break;
        if (all < least) least = all, from = j;
    }
    t->best[at(t, k, i)] = least;
    t->from[at(t, k, i)] = from;
}

static double fill(table *t, together of, double most) {
    for (int i = 0; i <= t->layers; i++) t->best[at(t, 0, i)] = i == 0 ? 0 : INFINITY;
    for (int k = 1; k <= t->parts; k++)
        for (int i = k; i <= t->layers; i++) fill_cell(t, k, i, of, most);
    return t->best[at(t, t->parts, t->layers)];
}

static void solve(table *t, int *first) {
    double most = fill(t, greatest, 0);
    (void)fill(t, squares, most * (1 + 1e-12));
    first[t->parts] = t->layers;
    for (int k = t->parts; k > 0; k--) first[k - 1] = t->from[at(t, k, first[k])];
}

static rp_status open_table(table *t) {
    size_t cells = ((size_t)t->parts + 1) * ((size_t)t->layers + 1);
    RP_TRY(rpi_alloc_array((size_t)t->layers + 1, sizeof *t->sums, "a cut", &t->sums));
    RP_TRY(rpi_alloc_array(cells, sizeof *t->best, "a cut", &t->best));
    return rpi_alloc_array(cells, sizeof *t->from, "a cut", &t->from);
}

static rp_status check(const rpi_stage_layer *layers, int count, int parts) {
    if (count < 1 || count > RPI_STAGE_LAYERS)
        return RP_FAIL(INVALID, "%d layers to cut; 1 to %d are allowed", count,
                       RPI_STAGE_LAYERS);
    if (parts < 1 || parts > count)
        return RP_FAIL(INVALID, "%d layer%s cannot be cut into %d parts; 1 to %d are possible",
                       count, count == 1 ? "" : "s", parts, count);
    for (int i = 0; i < count; i++)
        if (!(layers[i].cost >= 0) || !isfinite(layers[i].cost))
            return RP_FAIL(INVALID, "the cost of layer %d, %s, is negative or no number", i,
                           layers[i].name ? layers[i].name : "which has no name");
    return RP_OK;
}

rp_status rpi_stage_cut(const rpi_stage_layer *layers, int count, int parts, int *out_first) {
    table t = {.layers = count, .parts = parts};
    RP_TRY(check(layers, count, parts));
    rp_status status = open_table(&t);
    if (status == RP_OK) {
        for (int i = 0; i < count; i++) t.sums[i + 1] = t.sums[i] + layers[i].cost;
        solve(&t, out_first);
    }
    rpi_free(t.sums);
    rpi_free(t.best);
    rpi_free(t.from);
    return status;
}

double rpi_stage_cost(const rpi_stage_layer *layers, const int *first, int part) {
    double cost = 0;
    for (int i = first[part]; i < first[part + 1]; i++) cost += layers[i].cost;
    return cost;
}

double rpi_stage_most(const rpi_stage_layer *layers, const int *first, int parts) {
    double most = 0;
    for (int k = 0; k < parts; k++) most = fmax(most, rpi_stage_cost(layers, first, k));
    return most;
}

/* ---- ties ---- */

static int part_of(const int *first, int layer) {
    int part = 0;
    while (first[part + 1] <= layer) part++;
    return part;
}

static bool share(const rpi_stage_layer *a, const rpi_stage_layer *b) {
    return a->tie && b->tie && strcmp(a->tie, b->tie) == 0;
}

int rpi_stage_ties(const rpi_stage_layer *layers, int count, const int *first, int parts,
                   rpi_stage_tie *out_ties, int most) {
    int ties = 0;
    for (int i = 0; i < count && parts > 1; i++) {
        int last = i, before = 0;
        for (int j = i + 1; j < count; j++)
            if (share(&layers[i], &layers[j])) last = j;
        while (before < i && !share(&layers[before], &layers[i])) before++;
        rpi_stage_tie tie = {layers[i].tie, i, last, part_of(first, i), part_of(first, last)};
        if (before < i || tie.first_part == tie.last_part) continue;
        if (ties < most) out_ties[ties] = tie;
        ties++;
    }
    return ties;
}
