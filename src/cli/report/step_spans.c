#include "cli/report/step_spans.h"

#include "base/status.h"
#include "cli/report/arena_text.h"

#include <math.h>
#include <string.h>

const char *const rpi_span_names[RPI_SPAN_KINDS] = {"forward", "backward", "inputs",  "weights",
                                                    "stages",  "layers",   "replicas"};

static const double MOST = 9007199254740992.0; /* 2^53: whole numbers end there */

static double number(const cJSON *item) {
    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

static int64_t whole(const cJSON *item) {
    double value = number(item);
    return value >= 0 && value <= MOST ? (int64_t)value : -1;
}

static const cJSON *of(const cJSON *object, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static int kind_of(const cJSON *name) {
    for (int k = 0; cJSON_IsString(name) && k < RPI_SPAN_KINDS; k++)
        if (strcmp(name->valuestring, rpi_span_names[k]) == 0) return k;
    return -1;
}

/* [kind, chunk, micro-batch, start, end] */
static void read_span(const cJSON *list, rpi_picture_row *row) {
    enum { KIND, CHUNK, MICRO_BATCH, START, END };
    int kind = kind_of(cJSON_GetArrayItem(list, KIND));
    rpi_report_span span = {.chunk = whole(cJSON_GetArrayItem(list, CHUNK)),
                            .micro_batch = whole(cJSON_GetArrayItem(list, MICRO_BATCH)),
                            .start_s = number(cJSON_GetArrayItem(list, START)),
                            .end_s = number(cJSON_GetArrayItem(list, END))};
    if (kind < 0 || !isfinite(span.start_s) || !isfinite(span.end_s) ||
        span.end_s < span.start_s)
        return;
    span.kind = (rpi_span_kind)kind;
    row->spans[row->span_count++] = span;
    row->seconds[kind] += span.end_s - span.start_s;
}

static rp_status read_row(const cJSON *object, rpi_arena *arena, rpi_report_picture *picture) {
    rpi_picture_row row = {.rank = whole(of(object, "rank")),
                           .stage = whole(of(object, "stage")),
                           .context = whole(of(object, "context")),
                           .tensor = whole(of(object, "tensor")),
                           .start_s = number(of(object, "start_s")),
                           .end_s = number(of(object, "end_s"))};
    const cJSON *spans = of(object, "spans"), *span = NULL;
    if (row.rank < 0 || row.stage < 0 || row.tensor < 0 || !cJSON_IsArray(spans) ||
        !isfinite(row.start_s) || !isfinite(row.end_s) || row.end_s <= row.start_s)
        return RP_OK;
    RP_TRY(rpi_arena_array(arena, (size_t)cJSON_GetArraySize(spans), sizeof *row.spans,
                           &row.spans));
    cJSON_ArrayForEach(span, spans) if (cJSON_IsArray(span)) read_span(span, &row);
    picture->rows[picture->row_count++] = row;
    return RP_OK;
}

rp_status rpi_report_picture_read(const cJSON *object, rpi_arena *arena,
                                  const rpi_report_picture **out_picture) {
    const cJSON *ranks = of(object, "ranks"), *rank = NULL;
    rpi_report_picture *picture = NULL;
    if (!cJSON_IsArray(ranks)) return RP_OK;
    RP_TRY(rpi_arena_array(arena, 1, sizeof *picture, &picture));
    picture->step = whole(of(object, "picture_step"));
    RP_TRY(rpi_arena_array(arena, (size_t)cJSON_GetArraySize(ranks), sizeof *picture->rows,
                           &picture->rows));
    cJSON_ArrayForEach(rank, ranks) if (cJSON_IsObject(rank))
        RP_TRY(read_row(rank, arena, picture));
    *out_picture = picture->row_count ? picture : NULL;
    return RP_OK;
}
