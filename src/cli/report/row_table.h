/* The table below a chart of rows. */
#ifndef RPI_CLI_REPORT_ROW_TABLE_H
#define RPI_CLI_REPORT_ROW_TABLE_H

#include "cli/report/chart.h"

enum { RPI_ROW_COLUMNS = 7 };

typedef struct rpi_row_columns {
    const char *headings[RPI_ROW_COLUMNS]; /* of the values; NULL ends them */
    rpi_quantity quantities[RPI_ROW_COLUMNS];
} rpi_row_columns;

/* Make room for figure->row_count rows under these headings. */
rp_status rpi_row_table_begin(rpi_arena *arena, const char *corner,
                              const rpi_row_columns *columns, rpi_figure *figure);
/* Fill one row. */
rp_status rpi_row_table_fill(rpi_arena *arena, const rpi_row_columns *columns, int row,
                             const double *values, rpi_figure *figure);

#endif
