/* Throughput against ranks, beside the ideal without any cost of ranks. */
#include "cli/report/figure.h"

#include "base/status.h"
#include "cli/report/arena_text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Runs that differ only in their ranks. A run of one rank has neither codec nor link, and is
 * the first point of every series of its model. */
static bool belongs(const rpi_report_run *run, const rpi_report_run *leader) {
    if (strcmp(run->model, leader->model) != 0 || strcmp(run->data, leader->data) != 0 ||
        strcmp(run->unit, leader->unit) != 0)
        return false;
    return run->ranks == 1 ||
           (strcmp(run->codec, leader->codec) == 0 && strcmp(run->link, leader->link) == 0);
}

static bool is_usable(const rpi_report_run *run) {
    return run->ranks >= 1 && isfinite(run->rate.p50) && run->rate.p50 > 0;
}

static int by_ranks(const void *a, const void *b) {
    const rpi_point *p = a, *q = b;
    return p->x != q->x ? (p->x > q->x) - (p->x < q->x) : (p->y > q->y) - (p->y < q->y);
}

/* The median of several runs with equally many ranks. */
static void merge_alike(rpi_series *series) {
    int kept = 0;
    for (int i = 0; i < series->count;) {
        int count = 1;
        while (i + count < series->count && series->points[i + count].x == series->points[i].x)
            count++;
        int upper = i + count / 2, lower = i + (count - 1) / 2;
        rpi_point point = series->points[i];
        point.y = (series->points[lower].y + series->points[upper].y) / 2;
        series->points[kept++] = point;
        i += count;
    }
    series->count = kept;
}

static bool is_leader(const rpi_report *report, int index) {
    const rpi_report_run *run = &report->runs[index];
    if (run->ranks < 2 || !is_usable(run)) return false;
    for (int i = 0; i < index; i++)
        if (report->runs[i].ranks >= 2 && is_usable(&report->runs[i]) &&
            belongs(run, &report->runs[i]))
            return false;
    return true;
}

static rp_status make_series(const rpi_report *report, const rpi_report_run *leader,
                             rpi_series *series) {
    *series = (rpi_series){.style = leader->style, .marked = true};
    RP_TRY(rpi_arena_array(report->arena, (size_t)report->run_count, sizeof *series->points,
                           &series->points));
    for (int r = 0; r < report->run_count; r++) {
        const rpi_report_run *run = &report->runs[r];
        if (!is_usable(run) || !belongs(run, leader)) continue;
        series->points[series->count++] =
            (rpi_point){(double)run->ranks, run->rate.p50, NAN, NAN};
    }
    qsort(series->points, (size_t)series->count, sizeof *series->points, by_ranks);
    merge_alike(series);
    return rpi_arena_printf(report->arena, &series->label, "%s, %s%s%s", leader->model,
                            leader->codec, leader->link[0] ? ", " : "", leader->link);
}

/* The first point times the ratio of ranks; one line for all series with the same first point.
 */
static rp_status add_ideal(rpi_arena *arena, const rpi_series *measured, int first,
                           rpi_figure *figure) {
    const rpi_point *start = &measured->points[0],
                    *end = &measured->points[measured->count - 1];
    rpi_point far = {end->x, start->y / start->x * end->x, NAN, NAN};
    for (int i = first; i < figure->series_count; i++) {
        rpi_point *known = figure->series[i].points;
        if (known[0].x != start->x || known[0].y != start->y) continue;
        if (far.x > known[1].x) known[1] = far;
        figure->series[i].label = "ideal";
        return RP_OK;
    }
    rpi_series *ideal = &figure->series[figure->series_count++];
    *ideal = (rpi_series){.style = -1, .count = 2};
    RP_TRY(rpi_arena_array(arena, 2, sizeof *ideal->points, &ideal->points));
    ideal->points[0] = *start;
    ideal->points[1] = far;
    return rpi_arena_printf(arena, &ideal->label, "ideal: %s", measured->label);
}

static rp_status build(const rpi_report *report, rpi_figure *figure) {
    rpi_arena *arena = report->arena;
    RP_TRY(rpi_arena_array(arena, 2 * (size_t)report->run_count, sizeof *figure->series,
                           &figure->series));
    const char *unit = "images";
    int measured = 0;
    for (int r = 0; r < report->run_count; r++) {
        if (!is_leader(report, r)) continue;
        rpi_series *series = &figure->series[measured];
        RP_TRY(make_series(report, &report->runs[r], series));
        unit = report->runs[r].unit;
        if (series->count > 1) measured++;
    }
    if (measured == 0) return RP_OK;
    figure->series_count = measured;
    for (int i = 0; i < measured; i++)
        RP_TRY(add_ideal(arena, &figure->series[i], measured, figure));
    figure->title = "Scaling";
    figure->caption =
        "Median throughput against ranks. The dotted lines are ideal: as many times "
        "the first point as there are ranks for each there. Runs of one rank begin "
        "every line of their model.";
    figure->x = (rpi_axis){"ranks", RPI_WHOLE, false, true};
    RP_TRY(rpi_arena_printf(arena, &figure->y.title, "%s a second", unit));
    figure->y.from_zero = true;
    RP_TRY(rpi_series_summary(arena, figure));
    return rpi_series_table(arena, "runs", figure);
}

const rpi_figure_kind rpi_figure_scaling = {"scaling", build};
