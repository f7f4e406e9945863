/* Lines over two scales: a faint band of measured values, the line, and dots if asked for. */
#include "cli/report/chart_kinds.h"

#include "cli/report/markup.h"

#include <math.h>

enum { LEFT = 62, RIGHT = 22, TOP = 40, PLOT_HEIGHT = 236, BOTTOM = 50 };

typedef struct plane {
    rpi_scale x, y;
} plane;

int rpi_line_chart_height(const rpi_figure *figure) {
    (void)figure;
    return TOP + PLOT_HEIGHT + BOTTOM;
}

static void draw_grid(FILE *stream, const rpi_figure *figure, const plane *p) {
    fprintf(stream, "<g class=\"grid\">");
    for (int i = 0; i < p->y.tick_count; i++) {
        double y = rpi_scale_at(&p->y, p->y.ticks[i].value);
        fprintf(stream, "<path d=\"M%d %.1fH%d\"/>", LEFT, y, RPI_CHART_WIDTH - RIGHT);
    }
    fprintf(stream, "</g><g class=\"axis\"><path d=\"M%d %dH%d\"/>", LEFT, TOP + PLOT_HEIGHT,
            RPI_CHART_WIDTH - RIGHT);
    for (int i = 0; i < p->x.tick_count; i++)
        fprintf(stream, "<path d=\"M%.1f %dv5\"/>", rpi_scale_at(&p->x, p->x.ticks[i].value),
                TOP + PLOT_HEIGHT);
    fprintf(stream, "</g>\n<g class=\"ticks\">");
    for (int i = 0; i < p->y.tick_count; i++) {
        fprintf(stream, "<text class=\"end\" x=\"%d\" y=\"%.1f\">", LEFT - 8,
                rpi_scale_at(&p->y, p->y.ticks[i].value) + 4);
        rpi_markup_text(stream, p->y.ticks[i].text);
        fprintf(stream, "</text>");
    }
    for (int i = 0; i < p->x.tick_count; i++) {
        fprintf(stream, "<text class=\"middle\" x=\"%.1f\" y=\"%d\">",
                rpi_scale_at(&p->x, p->x.ticks[i].value), TOP + PLOT_HEIGHT + 20);
        rpi_markup_text(stream, p->x.ticks[i].text);
        fprintf(stream, "</text>");
    }
    fprintf(stream, "</g>\n");
    rpi_axis_title(stream, &figure->y, &p->y, "", 0, 18);
    rpi_axis_title(stream, &figure->x, &p->x, "end", RPI_CHART_WIDTH - RIGHT,
                   TOP + PLOT_HEIGHT + 42);
}

static bool is_drawn(const plane *p, const rpi_point *point) {
    return isfinite(rpi_scale_at(&p->x, point->x)) && isfinite(rpi_scale_at(&p->y, point->y));
}

static void draw_line(FILE *stream, const plane *p, const rpi_series *series) {
    bool pen_down = false;
    fprintf(stream, "<path class=\"line\" d=\"");
    for (int i = 0; i < series->count; i++) {
        const rpi_point *point = &series->points[i];
        bool drawn = is_drawn(p, point);
        if (drawn)
            fprintf(stream, "%c%.1f %.1f", pen_down ? 'L' : 'M', rpi_scale_at(&p->x, point->x),
                    rpi_scale_at(&p->y, point->y));
        pen_down = drawn;
    }
    fprintf(stream, "\"/>");
}

static bool has_band_at(const plane *p, const rpi_point *point) {
    return isfinite(rpi_scale_at(&p->x, point->x)) &&
           isfinite(rpi_scale_at(&p->y, point->low)) &&
           isfinite(rpi_scale_at(&p->y, point->high));
}

/* Along the upper edge and back along the lower one. */
static void draw_band_piece(FILE *stream, const plane *p, const rpi_point *points, int count) {
    for (int i = 0; i < count; i++)
        fprintf(stream, "%c%.1f %.1f", i ? 'L' : 'M', rpi_scale_at(&p->x, points[i].x),
                rpi_scale_at(&p->y, points[i].high));
    bool thin = true;
    for (int i = 0; i < count; i++) thin = thin && points[i].low == points[i].high;
    for (int i = count - 1; i >= 0 && !thin; i--)
        fprintf(stream, "L%.1f %.1f", rpi_scale_at(&p->x, points[i].x),
                rpi_scale_at(&p->y, points[i].low));
    if (!thin) fprintf(stream, "Z");
}

static void draw_band(FILE *stream, const plane *p, const rpi_series *series) {
    bool thin = true;
    for (int i = 0; i < series->count; i++)
        thin = thin && !(series->points[i].low < series->points[i].high);
    fprintf(stream, "<path class=\"%s\" d=\"", thin ? "raw" : "band");
    for (int i = 0; i < series->count;) {
        int count = 0;
        while (i + count < series->count && has_band_at(p, &series->points[i + count])) count++;
        if (count) draw_band_piece(stream, p, &series->points[i], count);
        i += count + 1;
    }
    fprintf(stream, "\"/>");
}

/* A line of one point is not visible: it gets a dot, as all points do if they are few. */
static void draw_dots(FILE *stream, const plane *p, const rpi_series *series) {
    for (int i = 0; i < series->count; i++) {
        const rpi_point *point = &series->points[i];
        if (!is_drawn(p, point)) continue;
        fprintf(stream, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%s\"/>",
                rpi_scale_at(&p->x, point->x), rpi_scale_at(&p->y, point->y),
                series->count > 60 ? "1.8" : "3");
    }
}

static void draw_series(FILE *stream, const plane *p, const rpi_series *series) {
    char class[32];
    fprintf(stream, "<g class=\"series %s\"><title>", rpi_style_class(series->style, class));
    rpi_markup_text(stream, series->label);
    fprintf(stream, "</title>");
    if (series->has_band) draw_band(stream, p, series);
    draw_line(stream, p, series);
    if (series->marked || series->count == 1) draw_dots(stream, p, series);
    fprintf(stream, "</g>\n");
}

void rpi_line_chart_draw(FILE *stream, const rpi_figure *figure, const char *id) {
    plane p = {.x = rpi_series_scale(figure, true, LEFT, RPI_CHART_WIDTH - RIGHT),
               .y = rpi_series_scale(figure, false, TOP + PLOT_HEIGHT, TOP)};
    draw_grid(stream, figure, &p);
    fprintf(stream,
            "<clipPath id=\"%s-frame\"><rect x=\"%d\" y=\"%d\" width=\"%d\" "
            "height=\"%d\"/></clipPath>\n<g clip-path=\"url(#%s-frame)\">\n",
            id, LEFT - 4, TOP - 4, RPI_CHART_WIDTH - RIGHT - LEFT + 8, PLOT_HEIGHT + 8, id);
    /* The first series is drawn last, so that it is on top. */
    for (int i = figure->series_count - 1; i >= 0; i--)
        draw_series(stream, &p, &figure->series[i]);
    fprintf(stream, "</g>\n");
}
