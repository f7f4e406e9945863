/* The results of evaluations on the held-out samples. */
#include "cli/report/figure.h"

#include "base/status.h"
#include "cli/report/arena_text.h"

#include <math.h>

typedef double (*metric)(const rpi_evaluation_row *row);

static double accuracy(const rpi_evaluation_row *row) {
    return row->accuracy;
}

static double perplexity(const rpi_evaluation_row *row) {
    return row->perplexity;
}

static rp_status make_series(rpi_arena *arena, const rpi_report_run *run, metric value,
                             rpi_series *series) {
    *series = (rpi_series){.label = run->label, .style = run->style, .marked = true};
    RP_TRY(rpi_arena_array(arena, (size_t)run->evaluation_count, sizeof *series->points,
                           &series->points));
    for (int i = 0; i < run->evaluation_count; i++) {
        const rpi_evaluation_row *row = &run->evaluations[i].row;
        if (isnan(value(row))) continue;
        series->points[series->count++] = (rpi_point){(double)row->step, value(row), NAN, NAN};
    }
    return RP_OK;
}

/* figure: with title, caption and y set; they stay if no run has the metric. */
static rp_status build(const rpi_report *report, metric value, rpi_figure *figure) {
    RP_TRY(rpi_arena_array(report->arena, (size_t)report->run_count, sizeof *figure->series,
                           &figure->series));
    for (int r = 0; r < report->run_count; r++) {
        rpi_series *series = &figure->series[figure->series_count];
        RP_TRY(make_series(report->arena, &report->runs[r], value, series));
        if (series->count > 0) figure->series_count++;
    }
    if (figure->series_count == 0) return RP_OK;
    figure->x = (rpi_axis){"steps", RPI_WHOLE, false, true};
    RP_TRY(rpi_series_summary(report->arena, figure));
    return rpi_series_table(report->arena, "run", figure);
}

static rp_status build_accuracy(const rpi_report *report, rpi_figure *figure) {
    figure->title = "Accuracy on the test set";
    figure->caption = "Share of the test images, or of the held-out tokens, that are told "
                      "right, at each evaluation.";
    figure->y = (rpi_axis){"test accuracy", RPI_SHARE, false, false};
    return build(report, accuracy, figure);
}

static rp_status build_perplexity(const rpi_report *report, rpi_figure *figure) {
    figure->title = "Perplexity on what is held out";
    figure->caption = "e to the power of the mean loss of the held-out tokens, at each "
                      "evaluation.";
    figure->y = (rpi_axis){"test perplexity", RPI_NUMBER, false, false};
    return build(report, perplexity, figure);
}

const rpi_figure_kind rpi_figure_accuracy = {"accuracy", build_accuracy};
const rpi_figure_kind rpi_figure_perplexity = {"perplexity", build_perplexity};
