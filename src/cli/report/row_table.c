#include "cli/report/row_table.h"

#include "base/status.h"
#include "cli/report/arena_text.h"

static int count_columns(const rpi_row_columns *columns) {
    int count = 0;
    while (count < RPI_ROW_COLUMNS && columns->headings[count]) count++;
    return count;
}

rp_status rpi_row_table_begin(rpi_arena *arena, const char *corner,
                              const rpi_row_columns *columns, rpi_figure *figure) {
    int count = count_columns(columns);
    rpi_table table = {.rows = figure->row_count + 1, .columns = count + 1};
    RP_TRY(rpi_arena_array(arena, (size_t)table.rows * (size_t)table.columns,
                           sizeof *table.cells, &table.cells));
    table.cells[0] = corner;
    for (int c = 0; c < count; c++) table.cells[c + 1] = columns->headings[c];
    figure->table = table;
    return RP_OK;
}

rp_status rpi_row_table_fill(rpi_arena *arena, const rpi_row_columns *columns, int row,
                             const double *values, rpi_figure *figure) {
    rpi_table *table = &figure->table;
    const char **cells = table->cells + (size_t)(row + 1) * (size_t)table->columns;
    cells[0] = figure->rows[row].label;
    for (int c = 0; c < table->columns - 1; c++) {
        char text[RPI_QUANTITY_TEXT];
        RP_TRY(rpi_arena_copy(arena, rpi_quantity_text(columns->quantities[c], values[c], text),
                              &cells[c + 1]));
    }
    return RP_OK;
}
