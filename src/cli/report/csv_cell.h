/* Cells of CSV files (RFC 4180), which people open in spreadsheets. */
#ifndef RPI_CLI_REPORT_CSV_CELL_H
#define RPI_CLI_REPORT_CSV_CELL_H

#include <stdio.h>

/* A text as one cell. If a spreadsheet would execute it as a formula (it begins with = + - @, a
 * tabulator or the end of a line) it gets an apostrophe in front, which marks a text in
 * spreadsheets; a number, such as -1.5 or +2e-3, is not changed. */
void rpi_csv_put_text(FILE *stream, const char *text);

#endif
