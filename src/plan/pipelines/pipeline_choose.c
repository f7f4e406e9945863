#include "plan/pipelines/pipeline_choose.h"

#include "base/status.h"

#include <math.h>
#include <stddef.h>

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
    rpi_pipeline_orders orders;
    rpi_pipeline_price price;
    RP_TRY(rpi_pipeline_shape_make(kind, request->stages, request->micro_batches, chunks,
                                   &row.shape));
    RP_TRY(rpi_pipeline_orders_build(kind, &row.shape, &orders));
    rp_status status = rpi_pipeline_price_make(&orders, &request->model, &price);
    rpi_pipeline_orders_destroy(&orders);
    if (status != RP_OK) return status;
    row.time_s = price.time_s;
    row.bubble = price.bubble;
    row.exposed_s = price.exposed_s;
    row.messages = price.messages;
    take_stages(&price, &row);
    row.fits = request->memory_bytes == 0 || row.kept_bytes <= request->memory_bytes;
    rpi_pipeline_price_free(&price);
    *out_row = row;
    return RP_OK;
}

static bool is_better(const rpi_pipeline_row *a, const rpi_pipeline_row *b) {
    double near = 1e-5 * fmin(a->time_s, b->time_s);
    if (fabs(a->time_s - b->time_s) > near) return a->time_s < b->time_s;
    if (a->kept_bytes < b->kept_bytes || a->kept_bytes > b->kept_bytes)
        return a->kept_bytes < b->kept_bytes;
    double a_kept = (double)a->kept / a->shape.chunks,
           b_kept = (double)b->kept / b->shape.chunks;
    return a_kept < b_kept;
}

rp_status rpi_pipeline_choose(const rpi_pipeline_request *request,
                              rpi_pipeline_row rows[RPI_PIPELINE_ROWS], int *out_count,
                              int *out_best) {
    const rpi_pipeline_kind *kind;
    int count = 0, best = -1;
    for (int i = 0; (kind = rpi_pipeline_kind_at(i)) != NULL && count < RPI_PIPELINE_ROWS;
         i++) {
        int64_t chunks = kind->chunks ? 0 : request->chunks;
        RP_TRY(rpi_pipeline_row_make(request, kind, chunks, &rows[count]));
        if (rows[count].fits && (best < 0 || is_better(&rows[count], &rows[best])))
            best = count;
        count++;
    }
    *out_count = count;
    *out_best = best;
    return RP_OK;
}
