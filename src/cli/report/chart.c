#include "cli/report/chart.h"

#include "cli/report/chart_kinds.h"

int rpi_chart_height(const rpi_figure *figure) {
    return figure->rows ? rpi_row_chart_height(figure) : rpi_line_chart_height(figure);
}

void rpi_chart_draw(FILE *stream, const rpi_figure *figure, const char *id) {
    if (figure->rows)
        rpi_row_chart_draw(stream, figure);
    else
        rpi_line_chart_draw(stream, figure, id);
}
