#include "cli/report/chart_figure.h"

#include "base/status.h"
#include "cli/report/arena_text.h"
#include "cli/report/markup.h"

#include <math.h>

enum { MOST_COLUMNS = 12, SUMMARISED = 8, MOST_TRIMMED = 8 };

const char *rpi_style_class(int style, char text[32]) {
    if (style < 0)
        snprintf(text, 32, "reference");
    else
        snprintf(text, 32, "k%d d%d", style % RPI_COLOURS, style / RPI_COLOURS % RPI_DASHES);
    return text;
}

void rpi_axis_title(FILE *stream, const rpi_axis *axis, const rpi_scale *scale,
                    const char *class, int x, int y) {
    fprintf(stream, "<text class=\"title %s\" x=\"%d\" y=\"%d\">", class, x, y);
    rpi_markup_text(stream, axis->title);
    if (scale->unit[0]) fprintf(stream, " (%s)", scale->unit);
    if (scale->logarithmic) fprintf(stream, ", log scale");
    fprintf(stream, "</text>\n");
}

static void widen(rpi_range *range, double value) {
    if (!isfinite(value) || (range->logarithmic && value <= 0)) return;
    range->low = fmin(range->low, value);
    range->high = fmax(range->high, value);
}

/* The edge of a band, except for a fiftieth of its points, so that a stray step does not
 * flatten a curve. */
static double trimmed(const rpi_series *series, bool upper) {
    double outermost[MOST_TRIMMED + 1];
    int kept = 0, room = series->count / 50 + 1;
    if (room > MOST_TRIMMED + 1) room = MOST_TRIMMED + 1;
    for (int i = 0; i < series->count; i++) {
        double value = upper ? series->points[i].high : -series->points[i].low;
        if (!isfinite(value)) continue;
        int at = kept;
        while (at > 0 && outermost[at - 1] < value) at--;
        if (at == room) continue;
        if (kept < room) kept++;
        for (int j = kept - 1; j > at; j--) outermost[j] = outermost[j - 1];
        outermost[at] = value;
    }
    if (kept == 0) return NAN;
    return upper ? outermost[kept - 1] : -outermost[kept - 1];
}

rpi_scale rpi_series_scale(const rpi_figure *figure, bool of_x, double from, double to) {
    const rpi_axis *axis = of_x ? &figure->x : &figure->y;
    rpi_range range = {.low = axis->from_zero ? 0 : INFINITY,
                       .high = axis->from_zero ? 0 : -INFINITY,
                       .quantity = axis->quantity,
                       .logarithmic = axis->logarithmic,
                       .rounds = !of_x,
                       .wanted = of_x ? 6 : 5};
    for (int s = 0; s < figure->series_count; s++) {
        const rpi_series *series = &figure->series[s];
        for (int i = 0; i < series->count; i++)
            widen(&range, of_x ? series->points[i].x : series->points[i].y);
        if (of_x || !series->has_band) continue;
        widen(&range, trimmed(series, false));
        widen(&range, trimmed(series, true));
    }
    return rpi_scale_make(&range, from, to);
}

/* The value of a line at x, between its points; NaN beyond its ends. */
static double value_at(const rpi_series *series, double x) {
    for (int i = 0; i < series->count; i++) {
        const rpi_point *point = &series->points[i];
        if (point->x < x) continue;
        if (point->x == x || i == 0) return point->x == x ? point->y : NAN;
        const rpi_point *before = point - 1;
        double share = (x - before->x) / (point->x - before->x);
        return before->y + share * (point->y - before->y);
    }
    return NAN;
}

/* All x of the series, ascending, if they are few; else 0. */
static int distinct(const rpi_figure *figure, double columns[MOST_COLUMNS]) {
    int count = 0;
    for (int s = 0; s < figure->series_count; s++)
        for (int i = 0; i < figure->series[s].count; i++) {
            double x = figure->series[s].points[i].x;
            int at = 0;
            while (at < count && columns[at] < x) at++;
            if (at < count && columns[at] == x) continue;
            if (count == MOST_COLUMNS) return 0;
            for (int j = count++; j > at; j--) columns[j] = columns[j - 1];
            columns[at] = x;
        }
    return count;
}

static bool is_covered(const rpi_figure *figure, double x) {
    for (int s = 0; s < figure->series_count; s++)
        if (!isnan(value_at(&figure->series[s], x))) return true;
    return false;
}

static int choose_columns(const rpi_figure *figure, double columns[MOST_COLUMNS]) {
    int count = distinct(figure, columns);
    if (count) return count;
    rpi_scale scale = rpi_series_scale(figure, true, 0, 1);
    for (int i = 0; i < scale.tick_count && count < MOST_COLUMNS; i++)
        if (is_covered(figure, scale.ticks[i].value)) columns[count++] = scale.ticks[i].value;
    return count;
}

rp_status rpi_series_table(rpi_arena *arena, const char *corner, rpi_figure *figure) {
    double columns[MOST_COLUMNS];
    int count = choose_columns(figure, columns);
    rpi_table table = {.rows = figure->series_count + 1, .columns = count + 1};
    RP_TRY(rpi_arena_array(arena, (size_t)table.rows * (size_t)table.columns,
                           sizeof *table.cells, &table.cells));
    char text[RPI_QUANTITY_TEXT];
    const char **cell = table.cells;
    *cell++ = corner;
    for (int c = 0; c < count; c++)
        RP_TRY(rpi_arena_copy(arena, rpi_quantity_text(figure->x.quantity, columns[c], text),
                              cell++));
    for (int s = 0; s < figure->series_count; s++) {
        *cell++ = figure->series[s].label;
        for (int c = 0; c < count; c++) {
            double value = value_at(&figure->series[s], columns[c]);
            RP_TRY(rpi_arena_copy(arena, rpi_quantity_text(figure->y.quantity, value, text),
                                  cell++));
        }
    }
    figure->table = table;
    return RP_OK;
}

rp_status rpi_series_summary(rpi_arena *arena, rpi_figure *figure) {
    const char *text = "";
    int count = figure->series_count < SUMMARISED ? figure->series_count : SUMMARISED;
    for (int s = 0; s < count; s++) {
        const rpi_series *series = &figure->series[s];
        if (series->count == 0) continue;
        char first[RPI_QUANTITY_TEXT], last[RPI_QUANTITY_TEXT];
        rpi_quantity_text(figure->y.quantity, series->points[0].y, first);
        rpi_quantity_text(figure->y.quantity, series->points[series->count - 1].y, last);
        RP_TRY(rpi_arena_printf(arena, &text, "%s%s%s: %s to %s", text, text[0] ? "; " : "",
                                series->label, first, last));
    }
    if (count < figure->series_count)
        RP_TRY(rpi_arena_printf(arena, &text, "%s; and %d more", text,
                                figure->series_count - count));
    figure->summary = text;
    return RP_OK;
}
