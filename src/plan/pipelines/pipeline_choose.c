#include "plan/pipelines/pipeline_choose.h"

#include "base/status.h"

#include <math.h>
#include <stddef.h>

/* ---- one kind ---- */

static rp_status cut_layers(const rpi_pipeline_request *request,
                            const rpi_pipeline_shape *shape, rpi_pipeline_trial *trial) {
    trial->model = request->model;
    if (!request->layers) return RP_OK;
    RP_TRY(rpi_pipeline_cut_make(request->layers, request->layer_count,
                                 shape->stages * shape->chunks, &trial->cut));
    rpi_pipeline_cut_apply(&trial->cut, &trial->model);
    return RP_OK;
}

/* Passes that are simulated while borders are moved: some tenths of a second. */
enum { MOST_SIMULATED = 1 << 20 };

/* Beside its time, how even stages are tells whether a cut is better: where two of them are the
 * slowest, no single move makes the step shorter. */
static double unevenness(const rpi_pipeline_price *price) {
    double squares = 0;
    for (int s = 0; s < price->stages; s++)
        squares += price->stage[s].busy_s * price->stage[s].busy_s;
    return squares;
}

static bool is_shorter(const rpi_pipeline_price *a, const rpi_pipeline_price *b) {
    double near = 1e-9 * b->time_s, even = unevenness(b);
    if (fabs(a->time_s - b->time_s) > near) return a->time_s < b->time_s;
    return unevenness(a) < even * (1 - 1e-9);
}

/* Keeps the move where the step gets shorter. */
static rp_status try_move(const rpi_pipeline_request *request, rpi_pipeline_trial *trial,
                          int part, int by, bool *in_out_moved) {
    rpi_pipeline_price price;
    if (!rpi_pipeline_cut_move(request->layers, &trial->cut, part, by)) return RP_OK;
    RP_TRY(rpi_pipeline_price_make(&trial->orders, &trial->model, &price));
    bool shorter = is_shorter(&price, &trial->price);
    rpi_pipeline_price_free(shorter ? &trial->price : &price);
    if (shorter)
        trial->price = price;
    else
        (void)rpi_pipeline_cut_move(request->layers, &trial->cut, part, -by);
    *in_out_moved |= shorter;
    return RP_OK;
}

static rp_status move_borders(const rpi_pipeline_request *request, rpi_pipeline_trial *trial) {
    int64_t left = MOST_SIMULATED;
    bool moved = request->layers != NULL;
    while (moved) {
        moved = false;
        for (int part = 1; part < trial->cut.parts; part++)
            for (int by = -1; by <= 1; by += 2) {
                left -= trial->orders.count;
                if (left < 0) return RP_OK;
                RP_TRY(try_move(request, trial, part, by, &moved));
            }
    }
    return RP_OK;
}

rp_status rpi_pipeline_trial_make(const rpi_pipeline_request *request,
                                  const rpi_pipeline_kind *kind, int64_t chunks,
                                  rpi_pipeline_trial *out) {
    rpi_pipeline_trial trial = {0};
    rpi_pipeline_shape shape;
    *out = trial;
    RP_TRY(
        rpi_pipeline_shape_make(kind, request->stages, request->micro_batches, chunks, &shape));
    rp_status status = cut_layers(request, &shape, &trial);
    if (status == RP_OK) status = rpi_pipeline_orders_build(kind, &shape, &trial.orders);
    if (status == RP_OK)
        status = rpi_pipeline_price_make(&trial.orders, &trial.model, &trial.price);
    if (status == RP_OK) status = move_borders(request, &trial);
    if (status == RP_OK)
        *out = trial;
    else
        rpi_pipeline_trial_free(&trial);
    return status;
}

void rpi_pipeline_trial_free(rpi_pipeline_trial *trial) {
    rpi_pipeline_orders_destroy(&trial->orders);
    rpi_pipeline_cut_free(&trial->cut);
    rpi_pipeline_price_free(&trial->price);
    *trial = (rpi_pipeline_trial){0};
}

static void take_stages(const rpi_pipeline_price *price, rpi_pipeline_row *row) {
    for (int s = 0; s < price->stages; s++) {
        const rpi_stage_price *stage = &price->stage[s];
        if (stage->kept > row->kept) row->kept = stage->kept;
        row->kept_bytes = fmax(row->kept_bytes, stage->kept_bytes);
        row->link_s = fmax(row->link_s, stage->link_s);
    }
}

rp_status rpi_pipeline_row_make(const rpi_pipeline_request *request,
                                const rpi_pipeline_kind *kind, int64_t chunks,
                                rpi_pipeline_row *out_row) {
    rpi_pipeline_row row = {.kind = kind};
    rpi_pipeline_trial trial;
    RP_TRY(rpi_pipeline_trial_make(request, kind, chunks, &trial));
    row.shape = trial.orders.shape;
    row.time_s = trial.price.time_s;
    row.bubble = trial.price.bubble;
    row.exposed_s = trial.price.exposed_s;
    row.messages = trial.price.messages;
    take_stages(&trial.price, &row);
    if (request->memory_bytes > 0 && row.kept_bytes > request->memory_bytes)
        row.verdict = RPI_PIPELINE_MEMORY;
    rpi_pipeline_trial_free(&trial);
    *out_row = row;
    return RP_OK;
}

/* ---- all kinds ---- */

static bool keeps_less(const rpi_pipeline_row *a, const rpi_pipeline_row *b) {
    if (a->kept_bytes < b->kept_bytes || a->kept_bytes > b->kept_bytes)
        return a->kept_bytes < b->kept_bytes;
    double a_kept = (double)a->kept / a->shape.chunks;
    double b_kept = (double)b->kept / b->shape.chunks;
    return a_kept < b_kept;
}

static double quickest(const rpi_pipeline_row *rows, int count) {
    double least = INFINITY;
    for (int i = 0; i < count; i++)
        if (rows[i].verdict == RPI_PIPELINE_FITS) least = fmin(least, rows[i].time_s);
    return least;
}

/* Of those that keep equally little the first in the catalogue: it is the simplest. */
static int best_of(const rpi_pipeline_row *rows, int count, double near) {
    double most = quickest(rows, count) * (1 + (near > 0 ? near : 1e-5));
    int best = -1;
    for (int i = 0; i < count; i++) {
        if (rows[i].verdict != RPI_PIPELINE_FITS || rows[i].time_s > most) continue;
        if (best < 0 || keeps_less(&rows[i], &rows[best])) best = i;
    }
    return best;
}

static bool is_asked_for(const rpi_pipeline_request *request, const rpi_pipeline_row *row) {
    int parts = row->shape.stages * row->shape.chunks;
    if (request->parts && parts != request->parts) return false;
    if (request->whole && !rpi_pipeline_is_whole(row->kind)) return false;
    return !request->ends_apart || row->shape.stages == 1 ||
           rpi_pipeline_stage(row->kind, row->shape.stages, parts - 1) != 0;
}

/* A kind that has more parts than there are layers has a row without a price. */
static rp_status try_kind(const rpi_pipeline_request *request, const rpi_pipeline_kind *kind,
                          rpi_pipeline_row *out_row) {
    int64_t chunks = kind->chunks ? 0 : request->chunks;
    rpi_pipeline_row row = {.kind = kind, .verdict = RPI_PIPELINE_LAYERS};
    RP_TRY(rpi_pipeline_shape_make(kind, request->stages, request->micro_batches, chunks,
                                   &row.shape));
    if (!is_asked_for(request, &row)) row.verdict = RPI_PIPELINE_UNASKED;
    if (row.verdict == RPI_PIPELINE_UNASKED) {
        *out_row = row;
        return RP_OK;
    }
    if (!request->layers || row.shape.stages * row.shape.chunks <= request->layer_count)
        return rpi_pipeline_row_make(request, kind, chunks, out_row);
    *out_row = row;
    return RP_OK;
}

rp_status rpi_pipeline_choose(const rpi_pipeline_request *request,
                              rpi_pipeline_row rows[RPI_PIPELINE_ROWS], int *out_count,
                              int *out_best) {
    const rpi_pipeline_kind *kind;
    int count = 0;
    for (; (kind = rpi_pipeline_kind_at(count)) != NULL && count < RPI_PIPELINE_ROWS; count++)
        RP_TRY(try_kind(request, kind, &rows[count]));
    *out_count = count;
    *out_best = best_of(rows, count, request->near);
    return RP_OK;
}
