#include "cli/report/run_table.h"

#include "base/status.h"
#include "cli/report/arena_text.h"
#include "cli/report/csv_cell.h"
#include "cli/report/markup.h"
#include "cli/report/quantity.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

/* ---- forecasts ---- */

/* Of a folder, or of the file in it. */
static rp_status recorded_machine(const char *path, rpi_arena *arena, const char **out) {
    static const char name[] = "metrics.jsonl";
    size_t length = strlen(path), tail = sizeof name - 1;
    bool is_file = length >= tail && strcmp(path + length - tail, name) == 0;
    int folder = (int)(is_file ? length - tail : length);
    return rpi_arena_printf(arena, out, "%.*s%s%s", folder, path, is_file ? "" : "/",
                            RPI_RUN_MACHINE);
}

rp_status rpi_report_predict(const rpi_metrics_file *file, const char *machine,
                             rpi_arena *arena, rpi_report_run *run) {
    rpi_run_forecast *forecast = NULL;
    rpi_run_record record;
    const char *path = machine;
    if (!file->header) return RP_OK;
    if (!machine) RP_TRY(recorded_machine(run->path, arena, &path));
    if (!machine && access(path, F_OK) != 0) return RP_OK;
    RP_TRY(rpi_arena_array(arena, 1, sizeof *forecast, &forecast));
    rp_status status = rpi_run_record_read(file->header, &record);
    bool is_run = status == RP_OK;
    if (is_run) status = rpi_run_forecast_make(&record, path, forecast);
    if (status == RP_OK) run->forecast = forecast;
    if (status == RP_OK || status == RP_NOMEM) return status;
    bool is_of_run = !is_run || status == RP_INVALID || status == RP_UNSUPPORTED;
    if (machine && !is_of_run) return status;
    return rpi_arena_copy(arena, rp_last_error()->message, &run->no_forecast);
}

double rpi_run_measured(const rpi_report_run *run, int item) {
    switch ((rpi_run_item)item) {
    case RPI_RUN_STEP: return run->parts.step_s;
    case RPI_RUN_COMPUTE: return run->parts.compute_s;
    case RPI_RUN_EXPOSED: return run->parts.network_s + run->parts.skew_s;
    case RPI_RUN_MEMORY: return run->memory_bytes;
    case RPI_RUN_SENT: return run->step_bytes;
    case RPI_RUN_RATE: return run->step_units / run->parts.step_s;
    default: return NAN;
    }
}

bool rpi_report_has_forecasts(const rpi_report *report) {
    for (int r = 0; r < report->run_count; r++)
        if (report->runs[r].forecast || report->runs[r].no_forecast) return true;
    return false;
}

/* ---- cells ---- */

enum { ITEM, PREDICTED, BETWEEN, MEASURED, ERROR_SHARE, COLUMNS };
static const char *const headings[COLUMNS] = {"item", "predicted", "9 of 10 times", "measured",
                                              "error"};
enum { CELL = 2 * RPI_QUANTITY_TEXT + 8 };
typedef struct cells {
    char text[COLUMNS][CELL];
} cells;

static const char *amount(int item, double value, char text[RPI_QUANTITY_TEXT]) {
    const char *unit = rpi_run_item_at(item)->unit;
    if (strcmp(unit, "s") == 0) return rpi_quantity_text(RPI_SECONDS, value, text);
    if (strcmp(unit, "bytes") == 0) return rpi_quantity_text(RPI_BYTES, value, text);
    return rpi_number_text(value, 4, text);
}

/* How far the forecast is above the measurement. */
static double error_of(const rpi_report_run *run, int item) {
    double measured = rpi_run_measured(run, item);
    return measured > 0 ? run->forecast->values[item] / measured - 1 : NAN;
}

static void fill(const rpi_report_run *run, int item, cells *out) {
    const rpi_run_forecast *f = run->forecast;
    char low[RPI_QUANTITY_TEXT], high[RPI_QUANTITY_TEXT];
    double error = error_of(run, item);
    snprintf(out->text[ITEM], CELL, "%s", rpi_run_item_at(item)->name);
    snprintf(out->text[PREDICTED], CELL, "%s", amount(item, f->values[item], low));
    snprintf(out->text[MEASURED], CELL, "%s", amount(item, rpi_run_measured(run, item), low));
    snprintf(out->text[BETWEEN], CELL, "–");
    if (!isnan(f->low[item]))
        snprintf(out->text[BETWEEN], CELL, "%s to %s", amount(item, f->low[item], low),
                 amount(item, f->high[item], high));
    snprintf(out->text[ERROR_SHARE], CELL, "–");
    if (!isnan(error)) snprintf(out->text[ERROR_SHARE], CELL, "%+.1f %%", 100 * error);
}

/* ---- for people ---- */

/* printf pads by bytes; letters beyond ASCII have several. */
static void pad(FILE *stream, const char *text, int width, bool to_right) {
    int letters = 0;
    for (const char *at = text; *at; at++) letters += ((unsigned char)*at & 0xc0) != 0x80;
    int blanks = width > letters ? width - letters : 0;
    fprintf(stream, "%*s%s%*s", to_right ? blanks : 0, "", text, to_right ? 0 : blanks, "");
}

static void print_row(FILE *stream, const cells *row) {
    static const int widths[COLUMNS] = {22, 11, 24, 11, 8};
    fprintf(stream, "  ");
    for (int c = 0; c < COLUMNS; c++) {
        if (c > 0) fprintf(stream, "  ");
        pad(stream, row->text[c], widths[c], c > 0);
    }
    fputc('\n', stream);
}

static void print_run(FILE *stream, const rpi_report_run *run) {
    const rpi_run_forecast *f = run->forecast;
    cells row;
    if (!f) {
        fprintf(stream, "\n%s: no forecast: %s\n", run->label, run->no_forecast);
        return;
    }
    fprintf(stream, "\n%s, predicted by %s, %d rank%s, %d thread%s each\n", run->label, f->cpu,
            f->ranks, f->ranks == 1 ? "" : "s", f->threads, f->threads == 1 ? "" : "s");
    for (int c = 0; c < COLUMNS; c++) snprintf(row.text[c], CELL, "%s", headings[c]);
    print_row(stream, &row);
    for (int i = 0; i < RPI_RUN_ITEMS; i++) {
        fill(run, i, &row);
        print_row(stream, &row);
    }
    if (f->remark[0]) fprintf(stream, "  %s\n", f->remark);
}

void rpi_run_table_print(FILE *stream, const rpi_report *report) {
    for (int r = 0; r < report->run_count; r++)
        if (report->runs[r].forecast || report->runs[r].no_forecast)
            print_run(stream, &report->runs[r]);
}

static void html_rows(FILE *stream, const rpi_report_run *run) {
    cells row;
    for (int i = 0; i < RPI_RUN_ITEMS && run->forecast; i++) {
        fill(run, i, &row);
        fprintf(stream, "<tr><th scope=\"row\">");
        rpi_markup_text(stream, run->label);
        fprintf(stream, "</th>");
        for (int c = 0; c < COLUMNS; c++) {
            fprintf(stream, c > 0 ? "<td class=\"n\">" : "<td>");
            rpi_markup_text(stream, row.text[c]);
            fprintf(stream, "</td>");
        }
        fprintf(stream, "</tr>\n");
    }
}

static void html_remark(FILE *stream, const rpi_report_run *run) {
    const char *remark = run->forecast ? run->forecast->remark : run->no_forecast;
    if (!remark || !remark[0]) return;
    fprintf(stream, "<p class=\"small\"><b>");
    rpi_markup_text(stream, run->label);
    fprintf(stream, run->forecast ? "</b>: " : "</b>: no forecast: ");
    rpi_markup_text(stream, remark);
    fprintf(stream, "</p>\n");
}

void rpi_run_table_html(FILE *stream, const rpi_report *report) {
    if (!rpi_report_has_forecasts(report)) return;
    fprintf(stream, "<section>\n<h2>Predicted beside measured</h2>\n"
                    "<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
                    "aria-label=\"Predicted beside measured\"><table>\n<thead><tr>"
                    "<th scope=\"col\">run</th>");
    for (int c = 0; c < COLUMNS; c++)
        fprintf(stream, "<th scope=\"col\"%s>%s</th>", c > 0 ? " class=\"n\"" : "",
                headings[c]);
    fprintf(stream, "</tr></thead>\n<tbody>\n");
    for (int r = 0; r < report->run_count; r++) html_rows(stream, &report->runs[r]);
    fprintf(stream, "</tbody></table></div>\n<p class=\"small\">Predicted from what "
                    "<code>redpoll bench machine</code> measured and from the run's options "
                    "alone; error is how far that is above what was measured.</p>\n");
    for (int r = 0; r < report->run_count; r++) html_remark(stream, &report->runs[r]);
    fprintf(stream, "</section>\n");
}

void rpi_run_table_markdown(FILE *stream, const rpi_report *report) {
    cells row;
    if (!rpi_report_has_forecasts(report)) return;
    fprintf(stream, "\n| run ");
    for (int c = 0; c < COLUMNS; c++) fprintf(stream, "| %s ", headings[c]);
    fprintf(stream, "|\n|---|---|---:|---:|---:|---:|\n");
    for (int r = 0; r < report->run_count; r++)
        for (int i = 0; i < RPI_RUN_ITEMS && report->runs[r].forecast; i++) {
            fill(&report->runs[r], i, &row);
            fprintf(stream, "| ");
            rpi_markdown_text(stream, report->runs[r].label);
            for (int c = 0; c < COLUMNS; c++) fprintf(stream, " | %s", row.text[c]);
            fprintf(stream, " |\n");
        }
}

/* ---- for programs ---- */

void rpi_run_table_csv(FILE *stream, const rpi_report_run *run) {
    char text[RPI_QUANTITY_TEXT];
    const rpi_run_forecast *f = run->forecast;
    for (int i = 0; i < RPI_RUN_ITEMS && f; i++) {
        const double values[] = {f->values[i], f->low[i], f->high[i], rpi_run_measured(run, i)};
        rpi_csv_put_text(stream, run->label);
        fprintf(stream, ",%s,%s", rpi_run_item_at(i)->key, rpi_run_item_at(i)->unit);
        for (int v = 0; v < 4; v++) fprintf(stream, ",%s", rpi_exact_text(values[v], text));
        fputc('\n', stream);
    }
}
