/* From the arguments of a command line to the runs and benchmarks of a report. */
#ifndef RPI_CLI_REPORT_LOAD_H
#define RPI_CLI_REPORT_LOAD_H

#include "cli/report/report_model.h"

typedef struct rpi_report_input {
    const char *path, *label;
} rpi_report_input;

typedef struct rpi_report_inputs {
    rpi_report_input *list;
    int count;
    const char *machine; /* with which runs are predicted; NULL: the one recorded with each */
} rpi_report_inputs;

/* Name each RUN: LABEL=PATH by its label, others by the last part of the path, or as much of it
 * as distinguishes them. RP_INVALID: one is given twice, or a label is; RP_IO: there is none.
 */
rp_status rpi_report_inputs_name(const char *const *words, int count, rpi_arena *arena,
                                 rpi_report_inputs *out_inputs);

/* Called with each file while its steps are in memory; they are gone afterwards. */
typedef rp_status (*rpi_report_visit)(void *context, int index, const char *label,
                                      const rpi_metrics_file *file);

/* Read all into the report, whose arena is set. One file is in memory at a time. RP_IO and
 * RP_CORRUPT as from the files, RP_NOT_FOUND if none of them has a step or a benchmark. */
rp_status rpi_report_load(const rpi_report_inputs *inputs, rpi_report_visit visit,
                          void *context, rpi_report *report);

#endif
