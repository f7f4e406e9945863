#include "train/data/label_split.h"

#include "base/c_locale.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "train/data/share.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { REDRAWS = 64 }; /* of labels that are used up, before one is drawn from what is left */
#define CONCENTRATION_MOST 1e6

rp_status rpi_split_parse(const char *text, rpi_label_split *out) {
    static const char dirichlet[] = "dirichlet=";
    *out = (rpi_label_split){.kind = RPI_SPLIT_IID};
    if (!text || strcmp(text, "iid") == 0) return RP_OK;
    if (strcmp(text, "by-label") == 0) {
        out->kind = RPI_SPLIT_BY_LABEL;
        return RP_OK;
    }
    if (strncmp(text, dirichlet, sizeof dirichlet - 1) != 0)
        return RP_FAIL(INVALID, "--split: '%s' is none of iid, by-label, dirichlet=A", text);
    const char *number = text + sizeof dirichlet - 1;
    char *end = NULL;
    out->kind = RPI_SPLIT_DIRICHLET;
    out->concentration = rpi_strtod(number, &end);
    bool is_number = end != number && !*end;
    if (!is_number || !(out->concentration > 0 && out->concentration <= CONCENTRATION_MOST))
        return RP_FAIL(INVALID,
                       "--split dirichlet=A: '%s' is no number above 0, and %g at most; 0.3 "
                       "gives each rank few labels, 100 nearly all alike",
                       number, CONCENTRATION_MOST);
    return RP_OK;
}

/* ---- samples by label ---- */

/* Lists of samples, one a label, each in a random order; samples are taken from their ends. */
typedef struct pool {
    const rpi_split_request *request;
    rpi_rng rng;
    uint32_t *samples;
    int64_t *first, *left; /* one a label */
    int64_t all_left;
} pool;

static void close_pool(pool *p) {
    rpi_free(p->samples);
    rpi_free(p->first);
    rpi_free(p->left);
}

static rp_status allocate_pool(pool *p) {
    size_t classes = (size_t)p->request->classes;
    RP_TRY(
        rpi_alloc_array((size_t)p->request->count, sizeof *p->samples, "labels", &p->samples));
    RP_TRY(rpi_alloc_array(classes, sizeof *p->first, "labels", &p->first));
    return rpi_alloc_array(classes, sizeof *p->left, "labels", &p->left);
}

static void fill_pool(pool *p) {
    const rpi_split_request *r = p->request;
    for (int64_t i = 0; i < r->count; i++) p->left[r->label_at(r->context, i)]++;
    for (int c = 1; c < r->classes; c++) p->first[c] = p->first[c - 1] + p->left[c - 1];
    memset(p->left, 0, (size_t)r->classes * sizeof *p->left);
    for (int64_t i = 0; i < r->count; i++) {
        int label = r->label_at(r->context, i);
        p->samples[p->first[label] + p->left[label]++] = (uint32_t)i;
    }
    for (int c = 0; c < r->classes; c++)
        rpi_rng_shuffle(&p->rng, p->samples + p->first[c], p->left[c]);
    p->all_left = r->count;
}

static uint32_t take(pool *p, int label) {
    p->all_left--;
    return p->samples[p->first[label] + --p->left[label]];
}

/* ---- drawing a label ---- */

static int lowest_left(const pool *p) {
    int label = 0;
    while (!p->left[label]) label++;
    return label;
}

/* Of a sample that is left. */
static int any_left(pool *p) {
    int64_t at = rpi_rng_below(&p->rng, (uint32_t)p->all_left);
    int label = 0;
    for (; at >= p->left[label]; label++) at -= p->left[label];
    return label;
}

/* The label of one of the `drawn` so far, or with the weight of A for each label a new one:
 * what comes so is distributed as draws from shares that are Dirichlet's. */
static int draw(pool *p, double concentration, const int *labels, int64_t drawn) {
    double fresh = concentration * (double)p->request->classes;
    for (int i = 0; i < REDRAWS; i++) {
        double u = (double)rpi_rng_uniform(&p->rng) * (fresh + (double)drawn);
        if (u < fresh) return any_left(p);
        int label = labels[rpi_rng_below(&p->rng, (uint32_t)drawn)];
        if (p->left[label]) return label;
    }
    return any_left(p);
}

/* ---- parts ---- */

/* Samples of a rank in an epoch: whole steps, and its share of the last. */
static int64_t part_of(const rpi_split_request *r, int rank) {
    int64_t whole = r->count / r->global_batch, left = r->count % r->global_batch;
    return whole * (rpi_share_first(r->global_batch, rank + 1, r->world) -
                    rpi_share_first(r->global_batch, rank, r->world)) +
           rpi_share_first(left, rank + 1, r->world) - rpi_share_first(left, rank, r->world);
}

static void fill_part(const rpi_label_split *split, pool *p, int rank, int *labels,
                      rpi_split_parts *parts) {
    int64_t count = parts->first[rank + 1] - parts->first[rank];
    uint32_t *samples = parts->samples + parts->first[rank];
    for (int64_t i = 0; i < count; i++) {
        int label = split->kind == RPI_SPLIT_BY_LABEL
                        ? lowest_left(p)
                        : draw(p, split->concentration, labels, i);
        labels[i] = label;
        samples[i] = take(p, label);
        parts->of_labels[(int64_t)rank * parts->classes + label]++;
    }
}

static rp_status fill_parts(const rpi_label_split *split, pool *p, rpi_split_parts *parts) {
    const rpi_split_request *r = p->request;
    int *labels = NULL;
    size_t world = (size_t)r->world;
    RP_TRY(rpi_alloc_array((size_t)r->count, sizeof *parts->samples, "parts of the data",
                           &parts->samples));
    RP_TRY(
        rpi_alloc_array(world + 1, sizeof *parts->first, "parts of the data", &parts->first));
    RP_TRY(rpi_alloc_array(world * (size_t)r->classes, sizeof *parts->of_labels,
                           "parts of the data", &parts->of_labels));
    RP_TRY(rpi_alloc_array((size_t)part_of(r, 0), sizeof *labels, "labels", &labels));
    for (int rank = 0; rank < r->world; rank++) {
        parts->first[rank + 1] = parts->first[rank] + part_of(r, rank);
        fill_part(split, p, rank, labels, parts);
    }
    rpi_free(labels);
    return RP_OK;
}

rp_status rpi_split_make(const rpi_label_split *split, const rpi_split_request *request,
                         rpi_split_parts *out_parts) {
    rpi_split_parts parts = {.world = request->world, .classes = request->classes};
    pool p = {.request = request, .rng = rpi_rng_make(request->seed, RPI_RNG_SPLIT, 0)};
    rp_status status = allocate_pool(&p);
    if (status == RP_OK) fill_pool(&p);
    if (status == RP_OK) status = fill_parts(split, &p, &parts);
    close_pool(&p);
    if (status == RP_OK)
        *out_parts = parts;
    else
        rpi_split_close(&parts);
    return status;
}

void rpi_split_close(rpi_split_parts *parts) {
    rpi_free(parts->samples);
    rpi_free(parts->first);
    rpi_free(parts->of_labels);
    *parts = (rpi_split_parts){0};
}
