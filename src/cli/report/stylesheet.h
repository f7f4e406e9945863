/* The style of pages and figures: one palette for light, dark and paper. */
#ifndef RPI_CLI_REPORT_STYLESHEET_H
#define RPI_CLI_REPORT_STYLESHEET_H

#include <stdio.h>

/* For a figure in a file of its own: palette, marks and fonts. */
void rpi_stylesheet_figure(FILE *stream);
/* For the page: the same, and everything around the figures. */
void rpi_stylesheet_page(FILE *stream);

#endif
