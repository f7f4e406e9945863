/* `redpoll report`: runs and benchmarks as a page, single figures, tables and event files. */
#include "cli/commands.h"

#include "base/folder.h"
#include "base/status.h"
#include "cli/option_rows.h"
#include "cli/report/arena_text.h"
#include "cli/report/comparison.h"
#include "cli/report/csv_tables.h"
#include "cli/report/figure.h"
#include "cli/report/layout_table.h"
#include "cli/report/page.h"
#include "cli/report/report_json.h"
#include "cli/report/report_load.h"
#include "cli/report/run_table.h"
#include "cli/report/tensorboard.h"

#include <stdlib.h>
#include <string.h>

typedef struct settings {
    const char *output, *csv, *tensorboard, *svg, *title, *machine;
    bool markdown, json;
    const char **words;
    int word_count;
} settings;

#define FIELD(name) offsetof(settings, name)
static const rpi_option options[] = {
    {"output", "o", NULL, RPI_OPTION_TEXT, FIELD(output), NULL, 0, 0, "FILE",
     "the page; report.html when nothing else is asked for", NULL},
    {"title", NULL, NULL, RPI_OPTION_TEXT, FIELD(title), NULL, 0, 0, "TEXT",
     "of the page, and below that of each figure of --svg; the names of the runs when absent",
     NULL},
    {"svg", NULL, NULL, RPI_OPTION_TEXT, FIELD(svg), NULL, 0, 0, "FOLDER",
     "each figure as a file", NULL},
    {"markdown", NULL, NULL, RPI_OPTION_FLAG, FIELD(markdown), NULL, 0, 0, NULL,
     "print the comparison as a table in Markdown", NULL},
    RPI_ROW_MACHINE(
        FIELD(machine), NULL,
        "what a machine makes of each run, beside what was measured: a file of redpoll bench "
        "machine -o; when absent the one that redpoll train --machine recorded with the run"),
    RPI_ROW_JSON(FIELD(json), "print the comparison, and forecasts, as one JSON object "
                              "(docs/json.md)"),
    {"csv", NULL, NULL, RPI_OPTION_TEXT, FIELD(csv), NULL, 0, 0, "FOLDER",
     "tidy tables; a name that ends in .csv: one file, the steps", NULL},
    {"tensorboard", NULL, NULL, RPI_OPTION_TEXT, FIELD(tensorboard), NULL, 0, 0, "FOLDER",
     "event files, for tensorboard --logdir FOLDER", NULL},
    {0},
};

static rp_status read_settings(int argc, char **argv, settings *s, bool *wants_help) {
    rpi_positional positional = {.words = s->words, .capacity = argc};
    RP_TRY(rpi_options_defaults(options, s));
    RP_TRY(rpi_options_environment(options, getenv, s));
    RP_TRY(rpi_options_parse(options, argc, argv, s, &positional, wants_help));
    s->word_count = positional.count;
    if (*wants_help) return RP_OK;
    if (s->markdown && s->json)
        return RP_FAIL(INVALID, "--markdown and --json both print a table: one of them");
    if (s->word_count == 0)
        return RP_FAIL(INVALID, "which run? a folder that redpoll train wrote to, for one");
    if (!s->output && !s->csv && !s->tensorboard && !s->svg && !s->markdown && !s->json)
        s->output = "report.html";
    return RP_OK;
}

typedef struct job {
    const settings *settings;
    rpi_report_inputs inputs;
    rpi_report report;
    rpi_csv_tables *csv;
    rpi_output_file *events; /* of each input */
    rpi_figure *figures;
    int figure_count;
} job;

/* Called for each file while all of its steps are in memory. */
static rp_status take_file(void *context, int index, const char *label,
                           const rpi_metrics_file *file) {
    job *j = context;
    if (j->csv) rpi_csv_add(j->csv, label, file);
    if (!j->settings->tensorboard || (!file->step_count && !file->evaluation_count))
        return RP_OK;
    return rpi_tensorboard_write(j->settings->tensorboard, label, file, &j->events[index]);
}

static rp_status commit_events(job *j) {
    if (j->settings->tensorboard && j->report.run_count == 0)
        return RP_FAIL(INVALID, "TensorBoard shows runs, and there is none among these files");
    for (int i = 0; i < j->inputs.count; i++)
        if (j->events[i].stream) RP_TRY(rpi_output_commit(&j->events[i]));
    return RP_OK;
}

static rp_status write_page(job *j) {
    rpi_output_file file = {0};
    if (!j->settings->output) return RP_OK;
    RP_TRY(rpi_output_open(j->settings->output, &file));
    rp_status status = rpi_page_write(file.stream, &j->report, j->figures, j->figure_count);
    if (status == RP_OK) return rpi_output_commit(&file);
    rpi_output_discard(&file);
    return status;
}

static rp_status write_figures(job *j) {
    if (!j->settings->svg) return RP_OK;
    RP_TRY(rpi_folder_make(j->settings->svg));
    for (int i = 0; i < j->figure_count; i++) {
        rpi_output_file file = {0};
        const char *path = "";
        RP_TRY(rpi_arena_printf(j->report.arena, &path, "%s/%s.svg", j->settings->svg,
                                j->figures[i].name));
        RP_TRY(rpi_output_open(path, &file));
        rpi_figure_write_file(file.stream, &j->figures[i], j->settings->title);
        RP_TRY(rpi_output_commit(&file));
    }
    return RP_OK;
}

static rp_status write_csv(job *j) {
    rpi_csv_tables *tables = j->csv;
    j->csv = NULL;
    return tables ? rpi_csv_commit(tables, &j->report) : RP_OK;
}

/* One line about each output; with a table on standard output it goes to standard error. */
static void tell(const job *j) {
    const settings *s = j->settings;
    FILE *stream = s->markdown || s->json ? stderr : stdout;
    const char *places[] = {s->output, s->svg, s->csv, s->tensorboard};
    int runs = j->report.run_count;
    for (int r = 0; r < runs; r++)
        if (j->report.runs[r].state == RPI_RUN_OPEN && j->report.runs[r].steps == 0)
            fprintf(stderr, "redpoll: note: %s has no steps yet\n", j->report.runs[r].path);
    for (int i = 0; i < 4; i++)
        if (places[i])
            fprintf(stream, "%s: %d run%s, %d figure%s\n", places[i], runs,
                    runs == 1 ? "" : "s", j->figure_count, j->figure_count == 1 ? "" : "s");
}

static rp_status make(job *j) {
    const settings *s = j->settings;
    RP_TRY(rpi_arena_array(j->report.arena, (size_t)j->inputs.count, sizeof *j->events,
                           &j->events));
    if (s->csv) RP_TRY(rpi_csv_open(s->csv, &j->csv));
    RP_TRY(rpi_report_load(&j->inputs, take_file, j, &j->report));
    if (s->title) j->report.title = s->title;
    RP_TRY(rpi_figures_build(&j->report, &j->figures, &j->figure_count));
    RP_TRY(write_page(j));
    RP_TRY(write_figures(j));
    RP_TRY(write_csv(j));
    RP_TRY(commit_events(j));
    if (s->markdown) rpi_comparison_markdown(stdout, &j->report);
    if (s->markdown) rpi_layout_table_markdown(stdout, &j->report);
    if (s->markdown) rpi_run_table_markdown(stdout, &j->report);
    if (s->json) rpi_report_print_json(&j->report);
    if (!s->markdown && !s->json) rpi_layout_table_print(stdout, &j->report);
    if (!s->markdown && !s->json) rpi_run_table_print(stdout, &j->report);
    tell(j);
    return RP_OK;
}

static int report(const settings *s) {
    job j = {.settings = s};
    rp_status status = rpi_arena_create(1 << 16, &j.report.arena);
    if (status != RP_OK) return rpi_command_failed(status);
    int code = RPI_EXIT_DONE;
    j.inputs.machine = s->machine;
    status = rpi_report_inputs_name(s->words, s->word_count, j.report.arena, &j.inputs);
    if (status == RP_INVALID)
        code = rpi_command_misused("report", status);
    else if (status != RP_OK || (status = make(&j)) != RP_OK)
        code = rpi_command_failed(status);
    rpi_csv_discard(j.csv);
    for (int i = 0; j.events && i < j.inputs.count; i++) rpi_output_discard(&j.events[i]);
    rpi_arena_destroy(j.report.arena);
    return code;
}

static int run(int argc, char **argv) {
    settings s = {0};
    bool wants_help = false;
    int code = RPI_EXIT_DONE;
    rp_status status = rpi_alloc_array((size_t)argc, sizeof *s.words, "words", &s.words);
    if (status == RP_OK) status = read_settings(argc, argv, &s, &wants_help);
    if (status != RP_OK)
        code = rpi_command_misused("report", status);
    else if (wants_help)
        rpi_command_print_help(&rpi_command_report, stdout);
    else
        code = report(&s);
    rpi_free(s.words);
    return code;
}

const rpi_command rpi_command_report = {
    .name = "report",
    .summary = "show runs and benchmarks in pictures and tables",
    .words = "RUN... [OPTIONS]",
    .about =
        "Shows runs in pictures: loss against steps, time and bytes, throughput, where a "
        "step's "
        "time goes, scaling, and a table that compares them, on one page that needs nothing "
        "else. RUN is a folder that redpoll train wrote to (also while it writes), or a file "
        "of "
        "redpoll bench --json; LABEL=RUN names it. With --machine, or where a run was started "
        "with it, what a machine was predicted to make of the run stands beside what it took.",
    .examples = "  redpoll report runs/fp32 runs/q4 -o report.html\n"
                "  redpoll report 'exact=runs/fp32' '4 bits=runs/q4' --svg figures\n"
                "  redpoll report runs/* --csv tables --tensorboard events\n",
    .options = options,
    .run = run,
};
