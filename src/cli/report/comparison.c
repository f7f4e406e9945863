#include "cli/report/comparison.h"

#include "base/append.h"
#include "cli/report/chart.h"
#include "cli/report/figure.h"
#include "cli/report/markup.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *or_none(const char *text) {
    return text[0] ? text : "–";
}

static const char *label(const rpi_report_run *run, char *text) {
    (void)text;
    return run->label;
}
static const char *model(const rpi_report_run *run, char *text) {
    (void)text;
    return or_none(run->model);
}
static const char *codec(const rpi_report_run *run, char *text) {
    (void)text;
    return or_none(run->codec);
}
static const char *link(const rpi_report_run *run, char *text) {
    (void)text;
    return or_none(run->link);
}
static const char *ranks(const rpi_report_run *run, char *text) {
    long long tensor = run->tensor_ranks > 1 ? run->tensor_ranks : 1;
    long long stages = run->stages > 1 ? run->stages : 1;
    long long context = run->context_ranks > 1 ? run->context_ranks : 1;
    long long each = tensor * stages * context;
    rpi_quantity_text(RPI_WHOLE, (double)run->ranks, text);
    if (each == 1) return text;
    rpi_append(text, RPI_QUANTITY_TEXT, ": dp %lld", run->ranks / each);
    if (tensor > 1) rpi_append(text, RPI_QUANTITY_TEXT, ", tp %lld", tensor);
    if (context > 1) rpi_append(text, RPI_QUANTITY_TEXT, ", cp %lld", context);
    if (stages > 1) rpi_append(text, RPI_QUANTITY_TEXT, ", pp %lld", stages);
    return text;
}
static const char *steps(const rpi_report_run *run, char *text) {
    return rpi_quantity_text(RPI_WHOLE, (double)run->steps, text);
}
static const char *loss(const rpi_report_run *run, char *text) {
    return rpi_quantity_text(RPI_NUMBER, run->final_loss, text);
}
static const char *accuracy(const rpi_report_run *run, char *text) {
    if (isnan(run->best_accuracy)) return "–";
    snprintf(text, RPI_QUANTITY_TEXT, "%.2f %%", 100 * run->best_accuracy);
    return text;
}
static const char *rate(const rpi_report_run *run, char *text) {
    rpi_number_text(run->rate.p50, 4, text);
    size_t used = strlen(text);
    if (strcmp(run->unit, "tokens") == 0)
        snprintf(text + used, RPI_QUANTITY_TEXT - used, " tokens");
    return text;
}
static const char *step_time(const rpi_report_run *run, char *text) {
    return rpi_quantity_text(RPI_SECONDS, run->parts.step_s, text);
}
static const char *megabytes(const rpi_report_run *run, char *text) {
    return rpi_number_text(run->step_bytes * 1e-6, 4, text);
}
static double exposed_share(const rpi_report_run *run) {
    return (run->parts.network_s + run->parts.skew_s) / run->parts.step_s;
}
static const char *exposed(const rpi_report_run *run, char *text) {
    double share = exposed_share(run);
    if (isnan(share)) return "–";
    snprintf(text, RPI_QUANTITY_TEXT, "%.1f %%", 100 * share);
    return text;
}

static double ranks_value(const rpi_report_run *run) {
    return (double)run->ranks;
}
static double steps_value(const rpi_report_run *run) {
    return (double)run->steps;
}
static double loss_value(const rpi_report_run *run) {
    return run->final_loss;
}
static double accuracy_value(const rpi_report_run *run) {
    return run->best_accuracy;
}
static double rate_value(const rpi_report_run *run) {
    return run->rate.p50;
}
static double step_time_value(const rpi_report_run *run) {
    return run->parts.step_s;
}
static double bytes_value(const rpi_report_run *run) {
    return run->step_bytes;
}

static const rpi_comparison_column columns[] = {
    {"run", "run", false, label, NULL},
    {"model", "model", false, model, NULL},
    {"codec", "codec", false, codec, NULL},
    {"link", "link", false, link, NULL},
    {"ranks", "ranks", true, ranks, ranks_value},
    {"steps", "steps", true, steps, steps_value},
    {"final loss", "final_loss", true, loss, loss_value},
    {"best accuracy", "best_accuracy", true, accuracy, accuracy_value},
    {"images/s", "images_s_median", true, rate, rate_value},
    {"step", "step_s", true, step_time, step_time_value},
    {"MB a step", "wire_bytes_mean", true, megabytes, bytes_value},
    {"exposed", "exposed_share", true, exposed, exposed_share},
};
enum { COLUMNS = sizeof columns / sizeof columns[0] };

const rpi_comparison_column *rpi_comparison_column_at(int index) {
    return index >= 0 && index < COLUMNS ? &columns[index] : NULL;
}

static void html_row(FILE *stream, const rpi_report_run *run) {
    char text[RPI_QUANTITY_TEXT], class[32];
    fprintf(stream, "<tr><th scope=\"row\">");
    rpi_figure_key(stream, rpi_style_class(run->style, class), true);
    fprintf(stream, "&#160;");
    rpi_markup_text(stream, run->label);
    fprintf(stream, "</th>");
    for (int c = 1; c < COLUMNS; c++) {
        fprintf(stream, columns[c].is_number ? "<td class=\"n\">" : "<td>");
        rpi_markup_text(stream, columns[c].cell(run, text));
        fprintf(stream, "</td>");
    }
    fprintf(stream, "</tr>\n");
}

void rpi_comparison_html(FILE *stream, const rpi_report *report) {
    fprintf(stream, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
                    "aria-label=\"Comparison of the runs\"><table>\n<thead><tr>");
    for (int c = 0; c < COLUMNS; c++)
        fprintf(stream, "<th scope=\"col\"%s>%s</th>",
                columns[c].is_number ? " class=\"n\"" : "", columns[c].heading);
    fprintf(stream, "</tr></thead>\n<tbody>\n");
    for (int r = 0; r < report->run_count; r++) html_row(stream, &report->runs[r]);
    fprintf(stream, "</tbody></table></div>\n");
}

void rpi_comparison_markdown(FILE *stream, const rpi_report *report) {
    for (int c = 0; c < COLUMNS; c++) fprintf(stream, "| %s ", columns[c].heading);
    fprintf(stream, "|\n");
    for (int c = 0; c < COLUMNS; c++) fprintf(stream, columns[c].is_number ? "|---:" : "|---");
    fprintf(stream, "|\n");
    for (int r = 0; r < report->run_count; r++) {
        for (int c = 0; c < COLUMNS; c++) {
            char text[RPI_QUANTITY_TEXT];
            fprintf(stream, "| ");
            rpi_markdown_text(stream, columns[c].cell(&report->runs[r], text));
            fprintf(stream, " ");
        }
        fprintf(stream, "|\n");
    }
}
