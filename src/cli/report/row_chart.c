/* Rows of bars over one scale, each below its label, so that there is room for long labels. */
#include "cli/report/chart_kinds.h"
#include "cli/report/markup.h"

#include <math.h>

enum { LEFT = 1, RIGHT = 8, BOTTOM = 50, LONGEST_LABEL = 46 };

int rpi_row_chart_height(const rpi_figure *figure) {
    return figure->row_count * RPI_ROW_HEIGHT + BOTTOM;
}

static rpi_scale make_scale(const rpi_figure *figure) {
    rpi_range range = {.quantity = figure->x.quantity, .wanted = 6};
    for (int r = 0; r < figure->row_count; r++)
        for (int b = 0; b < figure->rows[r].bar_count; b++)
            if (isfinite(figure->rows[r].bars[b].to))
                range.high = fmax(range.high, figure->rows[r].bars[b].to);
    for (int r = 0; r < figure->row_count; r++)
        for (int b = 0; b < figure->rows[r].span_count; b++)
            range.high = fmax(range.high, figure->rows[r].spans[b].to);
    return rpi_scale_make(&range, LEFT, RPI_CHART_WIDTH - RIGHT - 6);
}

static void draw_axis(FILE *stream, const rpi_figure *figure, const rpi_scale *x) {
    int bottom = figure->row_count * RPI_ROW_HEIGHT;
    fprintf(stream, "<g class=\"grid\">");
    for (int i = 0; i < x->tick_count; i++)
        for (int r = 0; r < figure->row_count; r++)
            fprintf(stream, "<path d=\"M%.1f %dv%d\"/>", rpi_scale_at(x, x->ticks[i].value),
                    r * RPI_ROW_HEIGHT + RPI_ROW_TOP - 2, RPI_ROW_HEIGHT - RPI_ROW_TOP);
    fprintf(stream, "</g><g class=\"axis\"><path d=\"M%d %dH%d\"/>", LEFT, bottom,
            RPI_CHART_WIDTH - RIGHT);
    for (int i = 0; i < x->tick_count; i++)
        fprintf(stream, "<path d=\"M%.1f %dv5\"/>", rpi_scale_at(x, x->ticks[i].value), bottom);
    fprintf(stream, "</g>\n<g class=\"ticks\">");
    for (int i = 0; i < x->tick_count; i++) {
        double at = rpi_scale_at(x, x->ticks[i].value);
        fprintf(stream, "<text class=\"%s\" x=\"%.1f\" y=\"%d\">",
                i == 0 && at < 20 ? "start" : "middle", i == 0 && at < 20 ? at - 1 : at,
                bottom + 20);
        rpi_markup_text(stream, x->ticks[i].text);
        fprintf(stream, "</text>");
    }
    fprintf(stream, "</g>\n");
    rpi_axis_title(stream, &figure->x, x, "end", RPI_CHART_WIDTH - RIGHT, bottom + 42);
}

static void draw_bar(FILE *stream, const rpi_scale *x, const rpi_bar *bar, int top) {
    if (!isfinite(bar->from) || !isfinite(bar->to)) return;
    double from = rpi_scale_at(x, bar->from), to = rpi_scale_at(x, bar->to);
    if (bar->from == bar->to) from -= 1, to += 1;
    fprintf(stream, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\">",
            bar->class, from, top + bar->top, to - from, bar->height);
    if (bar->title) {
        fprintf(stream, "<title>");
        rpi_markup_text(stream, bar->title);
        fprintf(stream, "</title>");
    }
    fprintf(stream, "</rect>");
}

static void draw_row(FILE *stream, const rpi_scale *x, const rpi_chart_row *row, int top) {
    char label[4 * LONGEST_LABEL + 8];
    fprintf(stream, "<g><text x=\"%d\" y=\"%d\">", LEFT, top + 17);
    rpi_markup_text(stream, rpi_markup_cut(row->label, LONGEST_LABEL, label, sizeof label));
    fprintf(stream, "</text><text class=\"end\" x=\"%d\" y=\"%d\">", RPI_CHART_WIDTH - RIGHT,
            top + 17);
    rpi_markup_text(stream, row->value);
    fprintf(stream, "</text>");
    for (int i = 0; i < row->bar_count; i++)
        draw_bar(stream, x, &row->bars[i], top + RPI_ROW_TOP);
    for (int i = 0; i < row->span_count; i++)
        draw_bar(stream, x, &row->spans[i], top + RPI_ROW_TOP);
    fprintf(stream, "</g>\n");
}

void rpi_row_chart_draw(FILE *stream, const rpi_figure *figure) {
    rpi_scale x = make_scale(figure);
    draw_axis(stream, figure, &x);
    for (int i = 0; i < figure->row_count; i++)
        draw_row(stream, &x, &figure->rows[i], i * RPI_ROW_HEIGHT);
}
