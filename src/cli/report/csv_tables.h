/* Tidy tables: one row for each observation, a column `run` first (RFC 4180). */
#ifndef RPI_CLI_REPORT_CSV_TABLES_H
#define RPI_CLI_REPORT_CSV_TABLES_H

#include "cli/report/output_file.h"
#include "cli/report/report_model.h"

typedef struct rpi_csv_tables rpi_csv_tables;

/* A path that ends in .csv is one file, the steps; any other a folder, which is made:
 * steps.csv, evaluations.csv, runs.csv, settings.csv and bench.csv. */
rp_status rpi_csv_open(const char *path, rpi_csv_tables **out_tables);
/* Every step and evaluation of one run; its benchmark rows. */
void rpi_csv_add(rpi_csv_tables *tables, const char *label, const rpi_metrics_file *file);
/* The tables that need all runs; then puts the files in place: all of them, or none if one
 * cannot be written. Frees the tables either way. */
rp_status rpi_csv_commit(rpi_csv_tables *tables, const rpi_report *report);
void rpi_csv_discard(rpi_csv_tables *tables); /* NULL is fine */

#endif
