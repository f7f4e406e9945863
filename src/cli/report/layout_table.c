#include "cli/report/layout_table.h"

#include "base/append.h"
#include "cli/report/markup.h"
#include "cli/report/quantity.h"

#include <math.h>
#include <string.h>

enum { COLUMNS = 7, CELL = 168, LABEL = 40 };

typedef struct cells {
    char text[COLUMNS][CELL];
} cells;

/* ---- which runs ---- */

static bool is_counted(const rpi_report_run *run) {
    return run->ranks >= 1 && isfinite(run->unit_flops) && isfinite(run->rate.p50) &&
           run->rate.p50 > 0;
}

static bool is_other(const rpi_report_run *a, const rpi_report_run *b) {
    return a->ranks != b->ranks || a->tensor_ranks != b->tensor_ranks ||
           a->context_ranks != b->context_ranks || a->stages != b->stages;
}

bool rpi_report_has_layouts(const rpi_report *report) {
    for (int a = 0; a < report->run_count; a++)
        for (int b = 0; b < a; b++)
            if (is_counted(&report->runs[a]) && is_counted(&report->runs[b]) &&
                is_other(&report->runs[a], &report->runs[b]))
                return true;
    return false;
}

/* The run of the same model with the fewest ranks: in an ideal run each rank does as much as
 * one of its ranks. Of several, the fastest. */
static const rpi_report_run *reference_of(const rpi_report *report, const rpi_report_run *run) {
    const rpi_report_run *best = run;
    for (int r = 0; r < report->run_count; r++) {
        const rpi_report_run *other = &report->runs[r];
        if (!is_counted(other) || strcmp(other->model, run->model) != 0 ||
            strcmp(other->unit, run->unit) != 0)
            continue;
        if (other->ranks < best->ranks ||
            (other->ranks == best->ranks && other->rate.p50 > best->rate.p50))
            best = other;
    }
    return best;
}

/* The `at`-th of the runs by number of ranks, in the given order if the numbers are equal;
 * NULL: no more. */
static const rpi_report_run *run_at(const rpi_report *report, int at) {
    for (int r = 0; r < report->run_count; r++) {
        const rpi_report_run *run = &report->runs[r];
        int before = 0;
        for (int i = 0; i < report->run_count; i++)
            before += is_counted(&report->runs[i]) &&
                      (report->runs[i].ranks < run->ranks ||
                       (report->runs[i].ranks == run->ranks && i < r));
        if (is_counted(run) && before == at) return run;
    }
    return NULL;
}

/* ---- cells ---- */

static void layout_text(const rpi_report_run *run, char text[CELL]) {
    long long tensor = run->tensor_ranks > 1 ? run->tensor_ranks : 1;
    long long stages = run->stages > 1 ? run->stages : 1;
    long long context = run->context_ranks > 1 ? run->context_ranks : 1;
    snprintf(text, CELL, "dp %lld", (long long)run->ranks / (tensor * context * stages));
    if (tensor > 1) rpi_append(text, CELL, ", tp %lld", tensor);
    if (context > 1) rpi_append(text, CELL, ", cp %lld", context);
    if (stages > 1) rpi_append(text, CELL, ", pp %lld", stages);
}

static void fill(const rpi_report *report, const rpi_report_run *run, cells *row) {
    const rpi_report_run *reference = reference_of(report, run);
    double ranks = (double)run->ranks, each = run->rate.p50 / ranks;
    double ideal = reference->rate.p50 / (double)reference->ranks * ranks;
    char number[RPI_QUANTITY_TEXT];
    rpi_markup_cut(run->label, LABEL, row->text[0], CELL);
    snprintf(row->text[1], CELL, "%lld", (long long)run->ranks);
    layout_text(run, row->text[2]);
    snprintf(row->text[3], CELL, "%s",
             rpi_number_text(1e-12 * each * run->unit_flops, 3, number));
    snprintf(row->text[4], CELL, "%s", rpi_number_text(each, 4, number));
    snprintf(row->text[5], CELL, "%s", rpi_number_text(run->rate.p50, 4, number));
    snprintf(row->text[6], CELL, "%s, %.0f %%", rpi_number_text(ideal, 4, number),
             100 * run->rate.p50 / ideal);
}

/* "tokens/s a rank": in the unit of the first run. */
static void head(const rpi_report *report, cells *row) {
    const rpi_report_run *first = run_at(report, 0);
    const char *unit = first ? first->unit : "images";
    snprintf(row->text[0], CELL, "run");
    snprintf(row->text[1], CELL, "ranks");
    snprintf(row->text[2], CELL, "layout");
    snprintf(row->text[3], CELL, "TFLOP/s a rank");
    snprintf(row->text[4], CELL, "%s/s a rank", unit);
    snprintf(row->text[5], CELL, "%s/s", unit);
    snprintf(row->text[6], CELL, "ideal, and of it");
}

static bool is_number(int column) {
    return column == 1 || column > 2;
}

/* ---- where it is told ---- */

static void html_row(FILE *stream, const cells *row, bool is_head) {
    fprintf(stream, "<tr>");
    for (int c = 0; c < COLUMNS; c++) {
        const char *name = is_head || c == 0 ? "th" : "td";
        fprintf(stream, "<%s%s%s>", name,
                is_head  ? " scope=\"col\""
                : c == 0 ? " scope=\"row\""
                         : "",
                is_number(c) ? " class=\"n\"" : "");
        rpi_markup_text(stream, row->text[c]);
        fprintf(stream, "</%s>", name);
    }
    fprintf(stream, "</tr>\n");
}

void rpi_layout_table_html(FILE *stream, const rpi_report *report) {
    const rpi_report_run *run;
    cells row;
    if (!rpi_report_has_layouts(report)) return;
    fprintf(stream, "<section>\n<h2>Ranks beside the ideal</h2>\n<div class=\"scroll\" "
                    "tabindex=\"0\" role=\"region\" aria-label=\"Ranks beside the ideal\">"
                    "<table>\n<thead>");
    head(report, &row);
    html_row(stream, &row, true);
    fprintf(stream, "</thead>\n<tbody>\n");
    for (int i = 0; (run = run_at(report, i)) != NULL; i++) {
        fill(report, run, &row);
        html_row(stream, &row, false);
    }
    fprintf(stream,
            "</tbody></table></div>\n<p class=\"small\">Operations are the model's, "
            "forward and backward, counted from its graph. Ideal: each rank as quick as "
            "those of the run of that model with fewest.</p>\n</section>\n");
}

void rpi_layout_table_markdown(FILE *stream, const rpi_report *report) {
    const rpi_report_run *run;
    cells row;
    if (!rpi_report_has_layouts(report)) return;
    head(report, &row);
    fprintf(stream, "\n");
    for (int c = 0; c < COLUMNS; c++) fprintf(stream, "| %s ", row.text[c]);
    fprintf(stream, "|\n");
    for (int c = 0; c < COLUMNS; c++) fprintf(stream, is_number(c) ? "|---:" : "|---");
    fprintf(stream, "|\n");
    for (int i = 0; (run = run_at(report, i)) != NULL; i++) {
        fill(report, run, &row);
        for (int c = 0; c < COLUMNS; c++) {
            fprintf(stream, "| ");
            rpi_markdown_text(stream, row.text[c]);
            fprintf(stream, " ");
        }
        fprintf(stream, "|\n");
    }
}

static void print_row(FILE *stream, const cells *row) {
    static const int widths[COLUMNS] = {16, 5, 20, 14, 15, 12, 17};
    for (int c = 0; c < COLUMNS; c++)
        fprintf(stream, "%s%*s", c ? "  " : "", is_number(c) ? widths[c] : -widths[c],
                row->text[c]);
    fprintf(stream, "\n");
}

void rpi_layout_table_print(FILE *stream, const rpi_report *report) {
    const rpi_report_run *run;
    cells row;
    if (!rpi_report_has_layouts(report)) return;
    head(report, &row);
    print_row(stream, &row);
    for (int i = 0; (run = run_at(report, i)) != NULL; i++) {
        fill(report, run, &row);
        print_row(stream, &row);
    }
}
