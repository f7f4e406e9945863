/* Predicted beside measured: the forecast of a run by a machine's file, and the run's own
 * values. */
#ifndef RPI_CLI_REPORT_RUN_TABLE_H
#define RPI_CLI_REPORT_RUN_TABLE_H

#include "cli/report/report_model.h"

#include <stdio.h>

/* The machine that a run was started with, in its folder. */
#define RPI_RUN_MACHINE "machine.json"

/* Sets the forecast of a run, or why there is none: by the file `machine`, or if that is NULL
 * by the one in the run's folder; neither if there is none, and not for files without a header.
 * RP_CORRUPT, RP_NOT_FOUND, RP_IO: of `machine`. */
rp_status rpi_report_predict(const rpi_metrics_file *file, const char *machine,
                             rpi_arena *arena, rpi_report_run *run);

/* The measured value of the same item; NaN: it was not measured. */
double rpi_run_measured(const rpi_report_run *run, int item);

bool rpi_report_has_forecasts(const rpi_report *report);
/* For a terminal, as a part of a page, and in Markdown; nothing without forecasts. */
void rpi_run_table_print(FILE *stream, const rpi_report *report);
void rpi_run_table_html(FILE *stream, const rpi_report *report);
void rpi_run_table_markdown(FILE *stream, const rpi_report *report);
/* Lines of forecasts.csv. */
void rpi_run_table_csv(FILE *stream, const rpi_report_run *run);

#endif
