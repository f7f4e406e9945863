/* The content of a chart: series of points, or rows of bars, and the texts that both kinds of
 * charts have. Colours, dashes and fonts come from the style sheet (stylesheet.h) by class. */
#ifndef RPI_CLI_REPORT_CHART_FIGURE_H
#define RPI_CLI_REPORT_CHART_FIGURE_H

#include "base/memory.h"
#include "cli/report/scale.h"

#include <stdio.h>

/* There is no last style: colours repeat, and dashes distinguish them. */
enum { RPI_COLOURS = 7, RPI_DASHES = 8, RPI_CHART_WIDTH = 640 };

typedef struct rpi_point {
    double x, y;      /* NaN: a gap */
    double low, high; /* NaN: no band */
} rpi_point;

typedef struct rpi_series {
    const char *label;
    int style;     /* negative: a thin grey line for comparison */
    bool marked;   /* a dot at each point */
    bool has_band; /* the faint band from low to high */
    rpi_point *points;
    int count;
} rpi_series;

typedef struct rpi_axis {
    const char *title;
    rpi_quantity quantity;
    bool logarithmic, from_zero;
} rpi_axis;

typedef struct rpi_bar {
    double from, to;    /* alike: a tick */
    double top, height; /* within the row */
    const char *class;  /* "k3": a style; "compute", "network", ... */
    const char *title;  /* shown when pointed at; NULL: none */
} rpi_bar;

enum { RPI_ROW_BARS = 6, RPI_ROW_TOP = 23, RPI_ROW_HEIGHT = 50 };

typedef struct rpi_chart_row {
    const char *label, *value; /* left and right above the bars */
    rpi_bar bars[RPI_ROW_BARS];
    int bar_count;
    const rpi_bar *spans; /* more of them, of an arena, after those */
    int span_count;
} rpi_chart_row;

/* Of a legend. */
typedef struct rpi_key {
    const char *label;
    const char *class;
} rpi_key;

typedef struct rpi_table {
    const char **cells; /* row by row; the first row and column are headings */
    int rows, columns;
} rpi_table;

typedef struct rpi_figure {
    const char *name; /* of its file: "loss-time" */
    const char *title, *caption, *summary;
    rpi_axis x, y; /* rows have x alone */
    rpi_series *series;
    int series_count;
    rpi_chart_row *rows;
    int row_count;
    rpi_key *keys; /* of rows; lines make their own */
    int key_count;
    rpi_table table;
} rpi_figure;

/* The classes of a style, "k2 d1". */
const char *rpi_style_class(int style, char text[32]);

/* The scale of one axis over all series; ends at round numbers when `rounds`. */
rpi_scale rpi_series_scale(const rpi_figure *figure, bool of_x, double from, double to);
/* The table below a chart of lines: a row for each series, a column for each x, or for the
 * ticks if there are many. */
rp_status rpi_series_table(rpi_arena *arena, const char *corner, rpi_figure *figure);
/* "q4: 2.42 to 0.451; fp32: ...", for readers who do not see the figure. */
rp_status rpi_series_summary(rpi_arena *arena, rpi_figure *figure);

/* "time (min)", and that a scale is logarithmic; class "" begins at x, "end" ends there. */
void rpi_axis_title(FILE *stream, const rpi_axis *axis, const rpi_scale *scale,
                    const char *class, int x, int y);

#endif
