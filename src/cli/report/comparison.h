/* One table of all runs, with the same columns in HTML, Markdown and CSV. */
#ifndef RPI_CLI_REPORT_COMPARISON_H
#define RPI_CLI_REPORT_COMPARISON_H

#include "cli/report/quantity.h"
#include "cli/report/report_model.h"

#include <stdio.h>

typedef struct rpi_comparison_column {
    const char *heading;
    const char *key; /* of the CSV; units in the name, as in docs/json.md */
    bool is_number;  /* aligned to the right */
    /* For people: the run's own text, or written to `text`. */
    const char *(*cell)(const rpi_report_run *run, char text[RPI_QUANTITY_TEXT]);
    double (*value)(const rpi_report_run *run); /* for programs; NULL: the cell itself */
} rpi_comparison_column;

/* NULL past the end. */
const rpi_comparison_column *rpi_comparison_column_at(int index);

void rpi_comparison_html(FILE *stream, const rpi_report *report);
void rpi_comparison_markdown(FILE *stream, const rpi_report *report);

#endif
