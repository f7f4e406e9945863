/* Settings on the page: first those that differ between the runs, then all given ones of each.
 */
#include "cli/report/markup.h"
#include "cli/report/page.h"

#include "base/status.h"
#include "cli/report/arena_text.h"

#include <string.h>

static const char *value_of(const rpi_report_run *run, const char *name) {
    for (int i = 0; i < run->setting_count; i++)
        if (strcmp(run->settings[i].name, name) == 0) return run->settings[i].value;
    return NULL;
}

static bool same(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* The name of every setting of some run, in the order in which they occur. */
static rp_status collect_names(const rpi_report *report, const char ***out_names,
                               int *out_count) {
    size_t room = 0;
    int count = 0;
    for (int r = 0; r < report->run_count; r++) room += (size_t)report->runs[r].setting_count;
    const char **names = NULL;
    RP_TRY(rpi_arena_array(report->arena, room, sizeof *names, &names));
    for (int r = 0; r < report->run_count; r++)
        for (int i = 0; i < report->runs[r].setting_count; i++) {
            const char *name = report->runs[r].settings[i].name;
            int known = 0;
            while (known < count && strcmp(names[known], name) != 0) known++;
            if (known == count) names[count++] = name;
        }
    *out_names = names;
    *out_count = count;
    return RP_OK;
}

static bool differs(const rpi_report *report, const char *name) {
    const char *first = value_of(&report->runs[0], name);
    for (int r = 1; r < report->run_count; r++)
        if (!same(value_of(&report->runs[r], name), first)) return true;
    return false;
}

static void cell(FILE *stream, const char *tag, const char *text) {
    fprintf(stream, "<%s>", tag);
    rpi_markup_text(stream, text && text[0] ? text : "–");
    fprintf(stream, strncmp(tag, "th", 2) == 0 ? "</th>" : "</td>");
}

static void write_differences(FILE *stream, const rpi_report *report, const char **names,
                              int count) {
    int differing = 0;
    for (int i = 0; i < count; i++) differing += differs(report, names[i]);
    if (report->run_count < 2) return;
    if (differing == 0) {
        fprintf(stream, "<p>All runs have the same settings.</p>\n");
        return;
    }
    fprintf(stream, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"What "
                    "differs\"><table><caption>What differs</caption>\n<thead><tr>"
                    "<th scope=\"col\">run</th>");
    for (int i = 0; i < count; i++)
        if (differs(report, names[i])) cell(stream, "th scope=\"col\"", names[i]);
    fprintf(stream, "</tr></thead>\n<tbody>\n");
    for (int r = 0; r < report->run_count; r++) {
        fprintf(stream, "<tr>");
        cell(stream, "th scope=\"row\"", report->runs[r].label);
        for (int i = 0; i < count; i++)
            if (differs(report, names[i]))
                cell(stream, "td", value_of(&report->runs[r], names[i]));
        fprintf(stream, "</tr>\n");
    }
    fprintf(stream, "</tbody></table></div>\n");
}

/* Those that are the same in all runs, once. */
static void write_shared(FILE *stream, const rpi_report *report, const char **names,
                         int count) {
    fprintf(stream, "<details><summary>%s</summary>\n<div class=\"scroll\"><table><tbody>\n",
            report->run_count > 1 ? "Settings that all runs share" : "All settings");
    for (int i = 0; i < count; i++) {
        const char *value = value_of(&report->runs[0], names[i]);
        if (differs(report, names[i]) || !value || !value[0]) continue;
        fprintf(stream, "<tr>");
        cell(stream, "th scope=\"row\"", names[i]);
        cell(stream, "td class=\"wide\"", value);
        fprintf(stream, "</tr>\n");
    }
    fprintf(stream, "</tbody></table></div></details>\n");
}

static void write_folders(FILE *stream, const rpi_report *report) {
    fprintf(stream, "<details><summary>Where the runs are</summary>\n<div class=\"scroll\">"
                    "<table><tbody>\n");
    for (int r = 0; r < report->run_count; r++) {
        fprintf(stream, "<tr>");
        cell(stream, "th scope=\"row\"", report->runs[r].label);
        cell(stream, "td class=\"wide\"", report->runs[r].path);
        fprintf(stream, "</tr>\n");
    }
    fprintf(stream, "</tbody></table></div></details>\n");
}

rp_status rpi_page_settings(FILE *stream, const rpi_report *report) {
    if (report->run_count == 0) return RP_OK;
    const char **names = NULL;
    int count = 0;
    RP_TRY(collect_names(report, &names, &count));
    fprintf(stream, "<section>\n<h2>Settings</h2>\n");
    write_differences(stream, report, names, count);
    write_shared(stream, report, names, count);
    write_folders(stream, report);
    fprintf(stream, "</section>\n");
    return RP_OK;
}
