/* Runs over more and more ranks: the throughput of each rank, beside the ideal. */
#ifndef RPI_CLI_REPORT_LAYOUT_TABLE_H
#define RPI_CLI_REPORT_LAYOUT_TABLE_H

#include "cli/report/report_model.h"

#include <stdio.h>

/* Whether there are two runs with known operations and different numbers of ranks or layouts.
 */
bool rpi_report_has_layouts(const rpi_report *report);
/* As a part of a page, in Markdown, and for a terminal; nothing without such runs. */
void rpi_layout_table_html(FILE *stream, const rpi_report *report);
void rpi_layout_table_markdown(FILE *stream, const rpi_report *report);
void rpi_layout_table_print(FILE *stream, const rpi_report *report);

#endif
