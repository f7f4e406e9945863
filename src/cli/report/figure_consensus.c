/* The distance between ranks that have parameters of their own (gossip, local SGD), at each
 * evaluation: against steps, against time, and against sent bytes. */
#include "cli/report/figure.h"

#include "base/status.h"
#include "cli/report/arena_text.h"

#include <math.h>

typedef double (*abscissa)(const rpi_run_evaluation *evaluation);

static double steps_of(const rpi_run_evaluation *evaluation) {
    return (double)evaluation->row.step;
}
static double seconds_of(const rpi_run_evaluation *evaluation) {
    return evaluation->seconds;
}
static double bytes_of(const rpi_run_evaluation *evaluation) {
    return evaluation->bytes;
}

static rp_status make_series(rpi_arena *arena, const rpi_report_run *run, abscissa x,
                             rpi_series *series) {
    *series = (rpi_series){.label = run->label, .style = run->style, .marked = true};
    RP_TRY(rpi_arena_array(arena, (size_t)run->evaluation_count, sizeof *series->points,
                           &series->points));
    for (int i = 0; i < run->evaluation_count; i++) {
        const rpi_run_evaluation *evaluation = &run->evaluations[i];
        double distance = evaluation->row.consensus;
        if (isnan(distance)) continue;
        series->points[series->count++] = (rpi_point){x(evaluation), distance, NAN, NAN};
    }
    return RP_OK;
}

/* Distances fall by powers of ten; 0 has no place on such a scale. */
static bool wants_log(const rpi_figure *figure) {
    double low = INFINITY, high = 0;
    for (int s = 0; s < figure->series_count; s++)
        for (int i = 0; i < figure->series[s].count; i++) {
            low = fmin(low, figure->series[s].points[i].y);
            high = fmax(high, figure->series[s].points[i].y);
        }
    return low > 0 && high >= 10 * low;
}

static rp_status build(const rpi_report *report, abscissa x, rpi_figure *figure) {
    RP_TRY(rpi_arena_array(report->arena, (size_t)report->run_count, sizeof *figure->series,
                           &figure->series));
    for (int r = 0; r < report->run_count; r++) {
        rpi_series *series = &figure->series[figure->series_count];
        RP_TRY(make_series(report->arena, &report->runs[r], x, series));
        if (series->count > 0) figure->series_count++;
    }
    if (figure->series_count == 0) return RP_OK;
    figure->caption = "How far ranks with parameters of their own are from their mean, as a "
                      "share of its norm (root mean square over ranks), at each evaluation.";
    figure->y = (rpi_axis){"consensus distance", RPI_NUMBER, wants_log(figure), false};
    RP_TRY(rpi_series_summary(report->arena, figure));
    return rpi_series_table(report->arena, "run", figure);
}

static rp_status build_steps(const rpi_report *report, rpi_figure *figure) {
    figure->title = "Consensus distance against steps";
    figure->x = (rpi_axis){"steps", RPI_WHOLE, false, true};
    return build(report, steps_of, figure);
}

static rp_status build_time(const rpi_report *report, rpi_figure *figure) {
    figure->title = "Consensus distance against time";
    figure->x = (rpi_axis){"time in training steps", RPI_SECONDS, false, true};
    return build(report, seconds_of, figure);
}

static rp_status build_bytes(const rpi_report *report, rpi_figure *figure) {
    figure->title = "Consensus distance against data sent";
    figure->x = (rpi_axis){"sent by rank 0", RPI_BYTES, false, true};
    return build(report, bytes_of, figure);
}

const rpi_figure_kind rpi_figure_consensus_steps = {"consensus-steps", build_steps};
const rpi_figure_kind rpi_figure_consensus_time = {"consensus-time", build_time};
const rpi_figure_kind rpi_figure_consensus_bytes = {"consensus-bytes", build_bytes};
