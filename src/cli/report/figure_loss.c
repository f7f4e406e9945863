/* Loss against steps, against time, and against sent bytes. */
#include "cli/report/figure.h"

#include "base/status.h"
#include "cli/report/arena_text.h"

#include <math.h>
#include <string.h>

enum { MOST_BANDS = 8 }; /* more would be mush */

typedef double (*abscissa)(const rpi_curve_point *point);

static double steps_of(const rpi_curve_point *point) {
    return point->step;
}
static double seconds_of(const rpi_curve_point *point) {
    return point->seconds;
}
static double bytes_of(const rpi_curve_point *point) {
    return point->bytes;
}

static rp_status make_series(rpi_arena *arena, const rpi_report_run *run, abscissa x,
                             bool has_band, rpi_series *series) {
    *series = (rpi_series){.label = run->label,
                           .style = run->style,
                           .has_band = has_band && run->window > 1,
                           .count = run->curve_count};
    RP_TRY(rpi_arena_array(arena, (size_t)run->curve_count, sizeof *series->points,
                           &series->points));
    for (int i = 0; i < run->curve_count; i++) {
        const rpi_curve_point *point = &run->curve[i];
        series->points[i] = (rpi_point){x(point), point->smooth, point->low, point->high};
    }
    return RP_OK;
}

/* Losses that span a decade get a logarithmic scale, if they are all positive. */
static bool wants_log(const rpi_report *report) {
    double low = INFINITY, high = 0;
    for (int r = 0; r < report->run_count; r++)
        for (int i = 0; i < report->runs[r].curve_count; i++) {
            double loss = report->runs[r].curve[i].smooth;
            if (!isfinite(loss)) continue;
            low = fmin(low, loss);
            high = fmax(high, loss);
        }
    return low > 0 && high >= 10 * low;
}

/* How many steps each mean has, printed once if it is the same for all. */
static rp_status smoothing(const rpi_report *report, bool has_bands, const char **out_text) {
    long long least = INT64_MAX, most = 0;
    bool envelopes = false;
    for (int r = 0; r < report->run_count; r++) {
        const rpi_report_run *run = &report->runs[r];
        if (run->curve_count == 0) continue;
        if (run->window < least) least = run->window;
        if (run->window > most) most = run->window;
        envelopes = envelopes || !run->single;
    }
    if (most <= 1) return rpi_arena_copy(report->arena, "Not smoothed.", out_text);
    char range[64];
    if (least == most)
        snprintf(range, sizeof range, "%lld steps", most);
    else
        snprintf(range, sizeof range, "a twentieth of the run (%lld to %lld steps)", least,
                 most);
    const char *band = !has_bands ? ""
                       : envelopes
                           ? " The faint band goes from the lowest to the highest loss of the "
                             "steps that a point stands for."
                           : " The faint line is the loss of each step.";
    return rpi_arena_printf(report->arena, out_text,
                            "Lines are means over %s around each point.%s", range, band);
}

static rp_status build(const rpi_report *report, abscissa x, const char *about,
                       rpi_figure *figure) {
    bool has_bands = report->run_count <= MOST_BANDS;
    RP_TRY(rpi_arena_array(report->arena, (size_t)report->run_count, sizeof *figure->series,
                           &figure->series));
    for (int r = 0; r < report->run_count; r++) {
        const rpi_report_run *run = &report->runs[r];
        if (run->curve_count == 0) continue;
        if (x == bytes_of && !(run->bytes > 0)) continue; /* one rank sends nothing */
        RP_TRY(make_series(report->arena, run, x, has_bands,
                           &figure->series[figure->series_count++]));
    }
    if (figure->series_count == 0) return RP_OK;
    figure->y = (rpi_axis){"training loss", RPI_NUMBER, wants_log(report), false};
    const char *how = "";
    RP_TRY(smoothing(report, has_bands, &how));
    RP_TRY(rpi_arena_printf(report->arena, &figure->caption, "%s %s", about, how));
    RP_TRY(rpi_series_summary(report->arena, figure));
    return rpi_series_table(report->arena, "run", figure);
}

static rp_status build_steps(const rpi_report *report, rpi_figure *figure) {
    figure->title = "Loss against steps";
    figure->x = (rpi_axis){"steps", RPI_WHOLE, false, true};
    return build(report, steps_of,
                 "Training loss, the mean over the global batch of each step.", figure);
}

static rp_status build_time(const rpi_report *report, rpi_figure *figure) {
    figure->title = "Loss against time";
    figure->x = (rpi_axis){"time in training steps", RPI_SECONDS, false, true};
    return build(
        report, seconds_of,
        "Training loss against the time that the steps took, evaluations and checkpoints "
        "left out.",
        figure);
}

static rp_status build_bytes(const rpi_report *report, rpi_figure *figure) {
    figure->title = "Loss against data sent";
    figure->x = (rpi_axis){"sent by rank 0", RPI_BYTES, false, true};
    return build(report, bytes_of, "Training loss against all bytes that rank 0 had sent.",
                 figure);
}

const rpi_figure_kind rpi_figure_loss_steps = {"loss-steps", build_steps};
const rpi_figure_kind rpi_figure_loss_time = {"loss-time", build_time};
const rpi_figure_kind rpi_figure_loss_bytes = {"loss-bytes", build_bytes};
