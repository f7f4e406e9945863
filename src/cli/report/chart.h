/* Two kinds of charts as SVG: lines over two scales, and rows of bars over one. */
#ifndef RPI_CLI_REPORT_CHART_H
#define RPI_CLI_REPORT_CHART_H

#include "cli/report/chart_figure.h"

/* The height of the drawing, below `top`. */
int rpi_chart_height(const rpi_figure *figure);
/* The marks themselves, without the <svg> around them; `id` makes names in the page unique. */
void rpi_chart_draw(FILE *stream, const rpi_figure *figure, const char *id);

#endif
