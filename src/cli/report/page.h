/* The page: one file of XHTML-compatible HTML5, complete in itself. */
#ifndef RPI_CLI_REPORT_PAGE_H
#define RPI_CLI_REPORT_PAGE_H

#include "cli/report/chart.h"
#include "cli/report/report_model.h"

/* RP_NOMEM; whether the stream took everything, its owner checks. */
rp_status rpi_page_write(FILE *stream, const rpi_report *report, const rpi_figure *figures,
                         int figure_count);
/* The part about settings: first those that differ between the runs, then all given ones. */
rp_status rpi_page_settings(FILE *stream, const rpi_report *report);

#endif
