#include "cli/report/page.h"

#include "base/status.h"
#include "cli/report/comparison.h"
#include "cli/report/figure.h"
#include "cli/report/layout_table.h"
#include "cli/report/markup.h"
#include "cli/report/run_table.h"
#include "cli/report/stylesheet.h"
#include "redpoll/version.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void element(FILE *stream, const char *tag, const char *class, const char *text) {
    fprintf(stream, "<%s%s%s%s>", tag, class ? " class=\"" : "", class ? class : "",
            class ? "\"" : "");
    rpi_markup_text(stream, text);
    fprintf(stream, "</%s>\n", tag);
}

static void write_head(FILE *stream, const rpi_report *report) {
    fprintf(stream,
            "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n"
            "<head>\n<meta charset=\"utf-8\"/>\n"
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
            "<meta name=\"generator\" content=\"redpoll %s\"/>\n",
            rp_version());
    element(stream, "title", NULL, report->title);
    fprintf(stream, "<style>\n");
    rpi_stylesheet_page(stream);
    fprintf(stream, "</style>\n</head>\n<body>\n<main>\n");
}

/* The text that is the same in all runs, or NULL. */
static const char *shared(const rpi_report *report, size_t offset) {
    const char *first = NULL;
    for (int r = 0; r < report->run_count; r++) {
        const char *text = *(const char *const *)((const char *)&report->runs[r] + offset);
        if (!first) first = text;
        if (!text[0] || strcmp(text, first) != 0) return NULL;
    }
    return first;
}

static void write_lead(FILE *stream, const rpi_report *report) {
    const char *model = shared(report, offsetof(rpi_report_run, model));
    const char *data = shared(report, offsetof(rpi_report_run, data));
    int benches = 0;
    for (int b = 0; b < report->bench_count; b++) benches += report->benches[b].count;
    fprintf(stream, "<p class=\"lead\">");
    if (report->run_count > 0) {
        fprintf(stream, "%d run%s", report->run_count, report->run_count == 1 ? "" : "s");
        fprintf(stream, model ? " of " : "");
        rpi_markup_text(stream, model ? model : "");
        fprintf(stream, data ? " on " : "");
        rpi_markup_text(stream, data ? data : "");
    }
    if (benches > 0)
        fprintf(stream, "%s%d line%s of benchmarks", report->run_count ? " and " : "", benches,
                benches == 1 ? "" : "s");
    fprintf(stream, ".</p>\n");
}

static rp_status write_markdown(FILE *stream, const rpi_report *report) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    if (!memory) return RP_FAIL(NOMEM, "no memory for a table");
    rpi_comparison_markdown(memory, report);
    bool whole = fclose(memory) == 0;
    if (whole) {
        fprintf(stream, "<details><summary>The same as Markdown, to copy</summary>\n"
                        "<pre tabindex=\"0\">");
        rpi_markup_text(stream, text);
        fprintf(stream, "</pre></details>\n");
    }
    free(text);
    return whole ? RP_OK : RP_FAIL(NOMEM, "no memory for a table");
}

static rp_status write_comparison(FILE *stream, const rpi_report *report) {
    if (report->run_count == 0) return RP_OK;
    fprintf(stream, "<section>\n<h2>Comparison</h2>\n");
    rpi_comparison_html(stream, report);
    fprintf(
        stream,
        "<p class=\"small\">Final loss is where the smoothed line of figure 1 ends. Images a "
        "second are medians, MB a step (sent by rank 0) are means; step and exposed are means "
        "over "
        "the middle half of the steps by their time, or over all of them where most send "
        "nothing. Exposed is the share of a step in which "
        "rank 0 waits for the network or for another rank.</p>\n");
    RP_TRY(write_markdown(stream, report));
    fprintf(stream, "</section>\n");
    return RP_OK;
}

static void write_figures(FILE *stream, const rpi_figure *figures, int count) {
    if (count == 0) return;
    fprintf(stream, "<section>\n<h2>Figures</h2>\n<div class=\"figures\">\n");
    for (int i = 0; i < count; i++) rpi_figure_write_page(stream, &figures[i], i + 1);
    fprintf(stream, "</div>\n</section>\n");
}

/* Whether this is the first run with this note. */
static bool is_new(const rpi_report *report, int run, const char *note) {
    for (int r = 0; r < run; r++)
        for (int i = 0; i < report->runs[r].note_count; i++)
            if (strcmp(report->runs[r].notes[i], note) == 0) return false;
    return true;
}

static bool has_note(const rpi_report_run *run, const char *note) {
    for (int i = 0; i < run->note_count; i++)
        if (strcmp(run->notes[i], note) == 0) return true;
    return false;
}

/* A note once, with all runs that have it. */
static void write_note(FILE *stream, const rpi_report *report, int first, const char *note) {
    int count = 0;
    for (int r = first; r < report->run_count; r++) count += has_note(&report->runs[r], note);
    bool of_all = count == report->run_count && count > 2;
    fprintf(stream, of_all ? "<li><b>each run</b>" : "<li>");
    for (int r = first; r < report->run_count && !of_all; r++) {
        if (!has_note(&report->runs[r], note)) continue;
        fprintf(stream, r > first ? ", <b>" : "<b>");
        rpi_markup_text(stream, report->runs[r].label);
        fprintf(stream, "</b>");
    }
    fprintf(stream, ": ");
    rpi_markup_text(stream, note);
    fprintf(stream, "</li>\n");
}

static void write_notes(FILE *stream, const rpi_report *report) {
    int count = 0;
    for (int r = 0; r < report->run_count; r++) count += report->runs[r].note_count;
    if (count == 0) return;
    fprintf(stream, "<section>\n<h2>Notes</h2>\n<ul class=\"notes\">\n");
    for (int r = 0; r < report->run_count; r++)
        for (int i = 0; i < report->runs[r].note_count; i++)
            if (is_new(report, r, report->runs[r].notes[i]))
                write_note(stream, report, r, report->runs[r].notes[i]);
    fprintf(stream, "</ul>\n</section>\n");
}

rp_status rpi_page_write(FILE *stream, const rpi_report *report, const rpi_figure *figures,
                         int figure_count) {
    write_head(stream, report);
    element(stream, "h1", NULL, report->title);
    write_lead(stream, report);
    RP_TRY(write_comparison(stream, report));
    rpi_layout_table_html(stream, report);
    rpi_run_table_html(stream, report);
    write_notes(stream, report);
    write_figures(stream, figures, figure_count);
    RP_TRY(rpi_page_settings(stream, report));
    fprintf(
        stream,
        "<footer class=\"small\">Made by <code>redpoll report</code>, redpoll %s.</footer>\n"
        "</main>\n</body>\n</html>\n",
        rp_version());
    return RP_OK;
}
