/* The output of `redpoll report --json` (docs/json.md). */
#ifndef RPI_CLI_REPORT_JSON_H
#define RPI_CLI_REPORT_JSON_H

#include "cli/report/report_model.h"

void rpi_report_print_json(const rpi_report *report);

#endif
