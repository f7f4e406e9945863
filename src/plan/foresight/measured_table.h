/* Measured trainings, as a table of comma-separated values.
 *
 * Lines that begin with # are comments; the first other line names the columns. Known columns
 * (rpi_measured_column_at) are read, others ignored. A layout that is passed with the table
 * gives what no column has. The time of a step is in iteration_s, iteration_ms, tokens_per_s or
 * tokens_per_s_gpu. */
#ifndef RPI_PLAN_MEASURED_TABLE_H
#define RPI_PLAN_MEASURED_TABLE_H

#include "plan/foresight/training_layout.h"

typedef struct rpi_measured_row {
    int line;
    rpi_training_layout layout;
    double step_s;
} rpi_measured_row;

enum { RPI_UNUSED_TEXT = 256 };
typedef struct rpi_measured_table {
    rpi_measured_row *rows; /* rpi_free() */
    int count;
    char unused[RPI_UNUSED_TEXT]; /* names of ignored columns; "" for none */
} rpi_measured_table;

typedef struct rpi_measured_column {
    const char *name, *help;
} rpi_measured_column;
/* NULL past the end. */
const rpi_measured_column *rpi_measured_column_at(int index);

/* Changes `text`. RP_INVALID: the message names line and column: a word that is no number, an
 * empty cell, a layout that is not legal, or no column with the time of a step. RP_NOMEM. */
rp_status rpi_measured_table_parse(char *text, const rpi_training_layout *otherwise,
                                   rpi_measured_table *out);

#endif
