/* Predicted beside measured: what a machine's file makes of a run, and what it took. */
#ifndef RPI_CLI_REPORT_RUN_TABLE_H
#define RPI_CLI_REPORT_RUN_TABLE_H

#include "cli/report/report_model.h"

#include <stdio.h>

/* The machine that a run was started with, in its folder. */
#define RPI_RUN_MACHINE "machine.json"

/* Sets the forecast of a run, or why there is none: by the file `machine`, or where that is
 * NULL by what is in the run's folder; neither where there is nothing, nor of files without a
 * header. RP_CORRUPT, RP_NOT_FOUND, RP_IO: of `machine`. */
rp_status rpi_report_predict(const rpi_metrics_file *file, const char *machine,
                             rpi_arena *arena, rpi_report_run *run);

/* The same item as it was measured; NaN: it was not. */
double rpi_run_measured(const rpi_report_run *run, int item);

bool rpi_report_has_forecasts(const rpi_report *report);
/* For a terminal, as a part of a page, and in Markdown; nothing without forecasts. */
void rpi_run_table_print(FILE *stream, const rpi_report *report);
void rpi_run_table_html(FILE *stream, const rpi_report *report);
void rpi_run_table_markdown(FILE *stream, const rpi_report *report);
/* Lines of forecasts.csv. */
void rpi_run_table_csv(FILE *stream, const rpi_report_run *run);

#endif
