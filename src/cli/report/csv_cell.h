/* Cells of CSV files (RFC 4180), which people open with spreadsheets. */
#ifndef RPI_CLI_REPORT_CSV_CELL_H
#define RPI_CLI_REPORT_CSV_CELL_H

#include <stdio.h>

/* A text as one cell. One that a spreadsheet would run as a formula (it begins with = + - @, a
 * tabulator or the end of a line) gets an apostrophe in front, which spreadsheets take for
 * "this is text"; a number, as -1.5 or +2e-3, stays as it is. */
void rpi_csv_put_text(FILE *stream, const char *text);

#endif
