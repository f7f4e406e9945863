/* From all steps of a run to its summary in a report. Pure. */
#ifndef RPI_CLI_REPORT_RUN_SUMMARY_H
#define RPI_CLI_REPORT_RUN_SUMMARY_H

#include "cli/report/report_model.h"

/* Fill all but label, path and style. At most `points` points of the curve are kept; each has
 * the extremes of its steps, so that no spike is lost. */
rp_status rpi_run_summarise(const rpi_metrics_file *file, int points, rpi_arena *arena,
                            rpi_report_run *run);

/* Of unsorted values, NaN among them left out; sorts them. Linear between neighbours. */
rpi_spread rpi_spread_of(double *values, size_t count);

#endif
