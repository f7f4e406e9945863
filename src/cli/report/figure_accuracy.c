/* Accuracy on the test set, wherever a run was evaluated. */
#include "cli/report/figure.h"

#include "base/status.h"
#include "cli/report/arena_text.h"

#include <math.h>

static rp_status make_series(rpi_arena *arena, const rpi_run *run, rpi_series *series) {
    *series = (rpi_series){.label = run->label, .style = run->style, .marked = true};
    RP_TRY(rpi_arena_array(arena, (size_t)run->evaluation_count, sizeof *series->points,
                           &series->points));
    for (int i = 0; i < run->evaluation_count; i++) {
        const rpi_evaluation_row *row = &run->evaluations[i];
        if (isnan(row->accuracy)) continue;
        series->points[series->count++] =
            (rpi_point){(double)row->step, row->accuracy, NAN, NAN};
    }
    return RP_OK;
}

static rp_status build(const rpi_report *report, rpi_figure *figure) {
    RP_TRY(rpi_arena_array(report->arena, (size_t)report->run_count, sizeof *figure->series,
                           &figure->series));
    for (int r = 0; r < report->run_count; r++) {
        rpi_series *series = &figure->series[figure->series_count];
        RP_TRY(make_series(report->arena, &report->runs[r], series));
        if (series->count > 0) figure->series_count++;
    }
    if (figure->series_count == 0) return RP_OK;
    figure->title = "Accuracy on the test set";
    figure->caption = "Share of the test images that are classified right, at each evaluation.";
    figure->x = (rpi_axis){"steps", RPI_WHOLE, false, true};
    figure->y = (rpi_axis){"test accuracy", RPI_SHARE, false, false};
    RP_TRY(rpi_series_summary(report->arena, figure));
    return rpi_series_table(report->arena, "run", figure);
}

const rpi_figure_kind rpi_figure_accuracy = {"accuracy", build};
