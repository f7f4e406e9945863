#ifndef RPI_CLI_REPORT_CHART_KINDS_H
#define RPI_CLI_REPORT_CHART_KINDS_H

#include "cli/report/chart.h"

/* The two kinds of charts, called by chart.c. */
int rpi_line_chart_height(const rpi_figure *figure);
void rpi_line_chart_draw(FILE *stream, const rpi_figure *figure, const char *id);
int rpi_row_chart_height(const rpi_figure *figure);
void rpi_row_chart_draw(FILE *stream, const rpi_figure *figure);

/* "time (min)", and that a scale is logarithmic; class "" begins at x, "end" ends there. */
void rpi_axis_title(FILE *stream, const rpi_axis *axis, const rpi_scale *scale,
                    const char *class, int x, int y);

#endif
