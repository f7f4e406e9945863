/* Trainings that were measured, as a table of comma-separated values.
 *
 * Lines that begin with # are comments; the first other line names the columns. Those that are
 * known (rpi_measured_column_at) are taken, others left alone; what no column says is that of a
 * layout that comes with the call. How long a step took is iteration_s, iteration_ms,
 * tokens_per_s or tokens_per_s_gpu. */
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
    char unused[RPI_UNUSED_TEXT]; /* names of columns that were left alone; "" for none */
} rpi_measured_table;

typedef struct rpi_measured_column {
    const char *name, *help;
} rpi_measured_column;
/* NULL past the end. */
const rpi_measured_column *rpi_measured_column_at(int index);

/* `text` is changed. RP_INVALID names the line and the column: a number that is none, a hole, a
 * layout that is not legal, or no column that says how long a step took. RP_NOMEM. */
rp_status rpi_measured_table_parse(char *text, const rpi_training_layout *otherwise,
                                   rpi_measured_table *out);

#endif
