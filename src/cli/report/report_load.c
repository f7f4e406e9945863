#include "cli/report/report_load.h"

#include "base/status.h"
#include "cli/report/arena_text.h"
#include "cli/report/run_summary.h"
#include "cli/report/run_table.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MOST_POINTS = 400, /* of one curve: about as many as a figure's width can show */
    LEAST_POINTS = 100,
    ALL_POINTS = 8000, /* of one figure's curves together */
    MOST_BENCH_ROWS = 10000,
};

static bool exists(const char *path) {
    return access(path, F_OK) == 0;
}

/* The folder's name; of "." and of a path that ends in metrics.jsonl, too. */
static rp_status base_label(const char *path, rpi_arena *arena, const char **out_label) {
    char *copy = NULL, *resolved = realpath(path, NULL);
    if (!resolved) return RP_FAIL_ERRNO(IO, "cannot read %s", path);
    rp_status status = rpi_strdup(resolved, &copy);
    free(resolved);
    RP_TRY(status);
    char *slash = strrchr(copy, '/');
    if (slash && slash != copy && strcmp(slash, "/metrics.jsonl") == 0) {
        *slash = '\0';
        slash = strrchr(copy, '/');
    }
    const char *name = slash && slash[1] ? slash + 1 : copy;
    status = rpi_arena_copy(arena, name, out_label);
    rpi_free(copy);
    return status;
}

/* LABEL=PATH, unless there is a file with that whole name. */
static rp_status name_input(const char *word, rpi_arena *arena, rpi_report_input *input,
                            bool *out_labelled) {
    const char *equals = strchr(word, '=');
    *input = (rpi_report_input){.path = word};
    *out_labelled = equals && equals != word && !exists(word) && exists(equals + 1);
    if (!*out_labelled) return base_label(word, arena, &input->label);
    input->path = equals + 1;
    return rpi_arena_printf(arena, &input->label, "%.*s", (int)(equals - word), word);
}

/* What identifies the file of a path: a folder stands for its metrics. */
static bool identify(const char *path, struct stat *facts) {
    char file[4096];
    if (stat(path, facts) != 0) return false;
    if (!S_ISDIR(facts->st_mode)) return true;
    int length = snprintf(file, sizeof file, "%s/metrics.jsonl", path);
    return (size_t)length >= sizeof file || stat(file, facts) == 0;
}

static bool is_same(const char *a, const char *b) {
    struct stat x, y;
    return identify(a, &x) && identify(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static rp_status check_twice(const rpi_report_inputs *inputs, const bool *labelled) {
    for (int i = 0; i < inputs->count; i++)
        for (int j = 0; j < i; j++) {
            const rpi_report_input *a = &inputs->list[j], *b = &inputs->list[i];
            if (is_same(a->path, b->path))
                return RP_FAIL(INVALID, "%s is given twice", b->path);
            if (labelled[i] && labelled[j] && strcmp(a->label, b->label) == 0)
                return RP_FAIL(INVALID, "two runs are called '%s'; labels must differ",
                               b->label);
        }
    return RP_OK;
}

/* Runs of the same name in different folders get the paths that the user gave. */
static rp_status tell_apart(const rpi_report_inputs *inputs, const bool *labelled,
                            rpi_arena *arena) {
    bool *twice = NULL;
    RP_TRY(rpi_arena_array(arena, (size_t)inputs->count, sizeof *twice, &twice));
    for (int i = 0; i < inputs->count; i++)
        for (int j = 0; j < inputs->count; j++)
            if (i != j && strcmp(inputs->list[i].label, inputs->list[j].label) == 0)
                twice[i] = true;
    for (int i = 0; i < inputs->count; i++)
        if (twice[i] && !labelled[i]) inputs->list[i].label = inputs->list[i].path;
    return RP_OK;
}

rp_status rpi_report_inputs_name(const char *const *words, int count, rpi_arena *arena,
                                 rpi_report_inputs *out_inputs) {
    rpi_report_inputs inputs = {.count = count, .machine = out_inputs->machine};
    bool *labelled = NULL;
    RP_TRY(rpi_arena_array(arena, (size_t)count, sizeof *inputs.list, &inputs.list));
    RP_TRY(rpi_arena_array(arena, (size_t)count, sizeof *labelled, &labelled));
    for (int i = 0; i < count; i++)
        RP_TRY(name_input(words[i], arena, &inputs.list[i], &labelled[i]));
    RP_TRY(check_twice(&inputs, labelled));
    RP_TRY(tell_apart(&inputs, labelled, arena));
    *out_inputs = inputs;
    return RP_OK;
}

static int points_for(int runs) {
    int points = ALL_POINTS / runs;
    return points > MOST_POINTS ? MOST_POINTS : points < LEAST_POINTS ? LEAST_POINTS : points;
}

static rp_status keep_run(const rpi_report_input *input, const rpi_metrics_file *file,
                          const char *machine, int points, rpi_report *report) {
    rpi_report_run *run = &report->runs[report->run_count];
    *run = (rpi_report_run){
        .label = input->label, .path = input->path, .style = report->run_count};
    RP_TRY(rpi_run_summarise(file, points, report->arena, run));
    RP_TRY(rpi_report_predict(file, machine, report->arena, run));
    report->run_count++;
    return RP_OK;
}

static rp_status keep_bench(const rpi_report_input *input, const rpi_metrics_file *file,
                            rpi_report *report) {
    if (file->bench_count > MOST_BENCH_ROWS)
        return RP_FAIL(UNSUPPORTED, "%s holds %zu lines of benchmarks; at most %d can be drawn",
                       input->path, file->bench_count, MOST_BENCH_ROWS);
    rpi_report_bench *bench = &report->benches[report->bench_count];
    *bench = (rpi_report_bench){.label = input->label, .count = (int)file->bench_count};
    RP_TRY(
        rpi_arena_array(report->arena, file->bench_count, sizeof *bench->rows, &bench->rows));
    memcpy(bench->rows, file->bench, file->bench_count * sizeof *bench->rows);
    report->bench_count++;
    return RP_OK;
}

static rp_status load_one(const rpi_report_inputs *inputs, int index, rpi_report_visit visit,
                          void *context, rpi_report *report) {
    const rpi_report_input *input = &inputs->list[index];
    rpi_metrics_file file;
    RP_TRY(rpi_metrics_file_open(input->path, report->arena, &file));
    rp_status status = visit(context, index, input->label, &file);
    bool is_run = file.header || file.step_count || file.evaluation_count || !file.bench_count;
    if (status == RP_OK && is_run)
        status = keep_run(input, &file, inputs->machine, points_for(inputs->count), report);
    if (status == RP_OK && file.bench_count > 0) status = keep_bench(input, &file, report);
    rpi_metrics_file_close(&file);
    return status;
}

/* "fp32, q4 and q8", or their number if that would be long. */
static rp_status choose_title(const rpi_report_inputs *inputs, rpi_report *report) {
    enum { LONGEST_TITLE = 90 };
    size_t length = 0;
    report->title = "";
    for (int i = 0; i < inputs->count; i++) length += strlen(inputs->list[i].label) + 2;
    if (length > LONGEST_TITLE && inputs->count > 1)
        return rpi_arena_printf(report->arena, &report->title, "%d %s", inputs->count,
                                report->bench_count ? "measurements" : "runs");
    for (int i = 0; i < inputs->count; i++) {
        const char *before = i == 0 ? "" : i == inputs->count - 1 ? " and " : ", ";
        RP_TRY(rpi_arena_printf(report->arena, &report->title, "%s%s%s", report->title, before,
                                inputs->list[i].label));
    }
    return RP_OK;
}

rp_status rpi_report_load(const rpi_report_inputs *inputs, rpi_report_visit visit,
                          void *context, rpi_report *report) {
    RP_TRY(rpi_arena_array(report->arena, (size_t)inputs->count, sizeof *report->runs,
                           &report->runs));
    RP_TRY(rpi_arena_array(report->arena, (size_t)inputs->count, sizeof *report->benches,
                           &report->benches));
    for (int i = 0; i < inputs->count; i++) RP_TRY(load_one(inputs, i, visit, context, report));
    int64_t steps = 0;
    for (int r = 0; r < report->run_count; r++) steps += report->runs[r].steps;
    if (steps == 0 && report->bench_count == 0)
        return RP_FAIL(NOT_FOUND, "%s has no steps yet; try again when the run has begun",
                       inputs->list[0].path);
    return choose_title(inputs, report);
}
