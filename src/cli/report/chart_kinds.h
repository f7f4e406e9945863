#ifndef RPI_CLI_REPORT_CHART_KINDS_H
#define RPI_CLI_REPORT_CHART_KINDS_H

#include "cli/report/chart_figure.h"

/* The two kinds of charts, called by chart.c. */
int rpi_line_chart_height(const rpi_figure *figure);
void rpi_line_chart_draw(FILE *stream, const rpi_figure *figure, const char *id);
int rpi_row_chart_height(const rpi_figure *figure);
void rpi_row_chart_draw(FILE *stream, const rpi_figure *figure);

#endif
