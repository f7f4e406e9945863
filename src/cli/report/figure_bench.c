/* Results of `redpoll bench --json` and predictions of `redpoll plan --json`, against size. */
#include "cli/report/figure.h"

#include "base/status.h"
#include "cli/report/arena_text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool same_series(const rpi_report_bench_row *a, const rpi_report_bench_row *b) {
    return strcmp(a->op, b->op) == 0 && strcmp(a->codec, b->codec) == 0 &&
           strcmp(a->algorithm, b->algorithm) == 0 && strcmp(a->transport, b->transport) == 0 &&
           strcmp(a->dtype, b->dtype) == 0 && a->ranks == b->ranks && a->is_plan == b->is_plan;
}

static bool is_first(const rpi_report_bench *bench, int index) {
    if (bench->rows[index].is_codec) return false;
    for (int i = 0; i < index; i++)
        if (!bench->rows[i].is_codec && same_series(&bench->rows[i], &bench->rows[index]))
            return false;
    return true;
}

static int by_size(const void *a, const void *b) {
    const rpi_point *p = a, *q = b;
    return (p->x > q->x) - (p->x < q->x);
}

static rpi_point time_point(const rpi_report_bench_row *row) {
    return (rpi_point){row->bytes, row->time_s, row->time_min_s, row->time_max_s};
}

static rpi_point bandwidth_point(const rpi_report_bench_row *row) {
    return (rpi_point){row->bytes, row->bytes / row->time_s, NAN, NAN};
}

/* A file with one series gives it its own name; otherwise what distinguishes the series is
 * added. */
static rp_status name_series(rpi_arena *arena, const rpi_report_bench *bench,
                             const rpi_report_bench_row *row, int kinds,
                             const char **out_label) {
    if (kinds == 1) return rpi_arena_copy(arena, bench->label, out_label);
    return rpi_arena_printf(arena, out_label, "%s: %s%s%s%s%s%s%s, %.0f ranks%s", bench->label,
                            row->op, row->codec[0] ? ", " : "", row->codec,
                            row->algorithm[0] ? ", " : "", row->algorithm,
                            row->transport[0] ? ", " : "", row->transport, row->ranks,
                            row->is_plan ? ", predicted" : "");
}

static rp_status make_series(const rpi_report *report, const rpi_report_bench *bench, int first,
                             rpi_point (*point_of)(const rpi_report_bench_row *row),
                             rpi_series *series) {
    RP_TRY(rpi_arena_array(report->arena, (size_t)bench->count, sizeof *series->points,
                           &series->points));
    for (int i = first; i < bench->count; i++) {
        const rpi_report_bench_row *row = &bench->rows[i];
        if (row->is_codec || !same_series(row, &bench->rows[first])) continue;
        rpi_point point = point_of(row);
        if (!(point.x > 0) || !isfinite(point.y) || !(point.y > 0)) continue;
        series->points[series->count++] = point;
        if (isfinite(point.low)) series->has_band = true;
    }
    qsort(series->points, (size_t)series->count, sizeof *series->points, by_size);
    return RP_OK;
}

static int count_kinds(const rpi_report_bench *bench) {
    int count = 0;
    for (int i = 0; i < bench->count; i++) count += is_first(bench, i);
    return count;
}

static rp_status build(const rpi_report *report,
                       rpi_point (*point_of)(const rpi_report_bench_row *row),
                       rpi_figure *figure) {
    rpi_arena *arena = report->arena;
    int kinds = 0, room = 0, style = 0;
    for (int b = 0; b < report->bench_count; b++) room += count_kinds(&report->benches[b]);
    RP_TRY(rpi_arena_array(arena, (size_t)room, sizeof *figure->series, &figure->series));
    for (int b = 0; b < report->bench_count; b++) {
        const rpi_report_bench *bench = &report->benches[b];
        kinds = count_kinds(bench);
        for (int i = 0; i < bench->count; i++) {
            if (!is_first(bench, i)) continue;
            rpi_series *series = &figure->series[figure->series_count];
            *series = (rpi_series){.style = style++, .marked = true};
            RP_TRY(name_series(arena, bench, &bench->rows[i], kinds, &series->label));
            RP_TRY(make_series(report, bench, i, point_of, series));
            if (series->count > 0) figure->series_count++;
        }
    }
    if (figure->series_count == 0) return RP_OK;
    figure->x = (rpi_axis){"size, uncompressed", RPI_BYTES, true, false};
    RP_TRY(rpi_series_summary(arena, figure));
    return rpi_series_table(arena, "measured", figure);
}

static rp_status build_time(const rpi_report *report, rpi_figure *figure) {
    figure->title = "Time against size";
    figure->caption = "Median time of one call, of its slowest rank; the band goes from the "
                      "shortest to the longest repeat.";
    figure->y = (rpi_axis){"time", RPI_SECONDS, true, false};
    return build(report, time_point, figure);
}

static rp_status build_bandwidth(const rpi_report *report, rpi_figure *figure) {
    figure->title = "Bandwidth against size";
    figure->caption = "Uncompressed bytes over the time of one call.";
    figure->y = (rpi_axis){"bandwidth", RPI_BYTES_S, false, true};
    return build(report, bandwidth_point, figure);
}

const rpi_figure_kind rpi_figure_bench_time = {"bench-time", build_time};
const rpi_figure_kind rpi_figure_bench_bandwidth = {"bench-bandwidth", build_bandwidth};
