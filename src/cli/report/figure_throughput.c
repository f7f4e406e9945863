/* Images (or tokens) a second, with their spread over the steps. */
#include "cli/report/figure.h"

#include "base/status.h"
#include "cli/report/arena_text.h"
#include "cli/report/row_table.h"

#include <math.h>
#include <string.h>

static const rpi_row_columns columns = {{"10 %", "25 %", "median", "75 %", "90 %"}, {0}};

static rp_status make_row(rpi_arena *arena, const rpi_report_run *run, rpi_chart_row *row) {
    const rpi_spread *s = &run->rate;
    char class[32], median[RPI_QUANTITY_TEXT];
    const char *classes[3] = {"whisker", "box", "median"};
    for (int i = 0; i < 3; i++)
        RP_TRY(rpi_arena_printf(arena, &classes[i], "%s %s", classes[i],
                                rpi_style_class(run->style % RPI_COLOURS, class)));
    *row = (rpi_chart_row){.label = run->label, .bar_count = 3};
    row->bars[0] = (rpi_bar){s->p10, s->p90, 6, 2, classes[0], NULL};
    row->bars[1] = (rpi_bar){s->p25, s->p75, 0, 14, classes[1], NULL};
    row->bars[2] = (rpi_bar){s->p50, s->p50, 0, 14, classes[2], NULL};
    for (int i = 0; i < 3; i++) row->bars[i].title = run->label;
    return rpi_arena_printf(arena, &row->value, "%s %s/s", rpi_number_text(s->p50, 4, median),
                            run->unit);
}

/* "images/s", or both if there are runs of both kinds. */
static const char *axis_title(const rpi_report *report) {
    bool images = false, tokens = false;
    for (int r = 0; r < report->run_count; r++) {
        bool is_tokens = strcmp(report->runs[r].unit, "tokens") == 0;
        images = images || !is_tokens;
        tokens = tokens || is_tokens;
    }
    return !tokens   ? "images a second"
           : !images ? "tokens a second"
                     : "images or tokens a second";
}

static rp_status summarise(const rpi_report *report, rpi_figure *figure) {
    RP_TRY(rpi_row_table_begin(report->arena, "run", &columns, figure));
    for (int r = 0, row = 0; r < report->run_count; r++) {
        const rpi_spread *s = &report->runs[r].rate;
        if (isnan(s->p50)) continue;
        double values[] = {s->p10, s->p25, s->p50, s->p75, s->p90};
        RP_TRY(rpi_row_table_fill(report->arena, &columns, row++, values, figure));
    }
    for (int row = 0; row < figure->row_count && row < 8; row++)
        RP_TRY(rpi_arena_printf(report->arena, &figure->summary, "%s%s%s: %s", figure->summary,
                                row ? "; " : "", figure->rows[row].label,
                                figure->rows[row].value));
    return RP_OK;
}

static rp_status build(const rpi_report *report, rpi_figure *figure) {
    RP_TRY(rpi_arena_array(report->arena, (size_t)report->run_count, sizeof *figure->rows,
                           &figure->rows));
    for (int r = 0; r < report->run_count; r++) {
        if (isnan(report->runs[r].rate.p50)) continue;
        RP_TRY(make_row(report->arena, &report->runs[r], &figure->rows[figure->row_count++]));
    }
    figure->title = "Throughput";
    figure->caption = "The strokes are medians over the steps, boxes go from the lower to the "
                      "upper quartile, lines from the 10th to the 90th percentile.";
    figure->x = (rpi_axis){axis_title(report), RPI_NUMBER, false, true};
    return summarise(report, figure);
}

const rpi_figure_kind rpi_figure_throughput = {"throughput", build};
