/* The page: one file of XHTML-compatible HTML5 that needs nothing else. */
#ifndef RPI_CLI_REPORT_PAGE_H
#define RPI_CLI_REPORT_PAGE_H

#include "cli/report/chart.h"
#include "cli/report/report_model.h"

/* RP_NOMEM; whether the stream took it all is its owner's to ask. */
rp_status rpi_page_write(FILE *stream, const rpi_report *report, const rpi_figure *figures,
                         int figure_count);
/* The part about settings: what differs between the runs, and what each was given. */
rp_status rpi_page_settings(FILE *stream, const rpi_report *report);

#endif
