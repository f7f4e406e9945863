/* `redpoll plan check`: forecasts beside trainings that were measured. */
#include "base/memory.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "cli/commands.h"
#include "cli/numbers.h"
#include "cli/option_rows.h"
#include "cli/plan_training.h"
#include "cli/plan_words.h"
#include "plan/foresight/forecast_fit.h"

#include <cjson/cJSON.h>
#include <stdio.h>

enum { MOST_FILE = 1 << 24, FACTS_TEXT = 8192, SOURCE_TEXT = 256 };

typedef struct settings {
    rpi_plan_training training;
    const char *file, *fit;
    bool brief, json;
} settings;

#define FIELD(name) offsetof(settings, name)
#define SAID(name)  offsetof(settings, training.name)
static const rpi_option options[] = {
    RPI_ROWS_PLAN_TRAINING(SAID),
    {"fit", NULL, NULL, RPI_OPTION_TEXT, FIELD(fit), NULL, 0, 0, "FILE",
     "fit the device's efficiency to the rows, and write it there, for --devices", NULL},
    {"brief", NULL, NULL, RPI_OPTION_FLAG, FIELD(brief), NULL, 0, 0, NULL,
     "no line for each row", NULL},
    RPI_ROW_JSON(FIELD(json), "one JSON object (docs/json.md)"),
    {0},
};

typedef struct check {
    const settings *s;
    rpi_planned_training planned;
    rpi_measured_table table;
    rpi_forecast *forecasts; /* of each row */
    rpi_forecast_errors errors;
    rpi_plan_device_fit fit; /* with --fit */
} check;

/* ---- what is compared ---- */

static rp_status read_table(check *c) {
    char *text = NULL;
    size_t bytes;
    RP_TRY(rpi_regular_file_read(c->s->file, MOST_FILE, &text, &bytes));
    rp_status status = rpi_measured_table_parse(text, &c->planned.layout, &c->table);
    rpi_free(text);
    return status == RP_INVALID ? rpi_fail_context(status, "%s, ", c->s->file) : status;
}

static bool needs_link(const check *c) {
    for (int i = 0; i < c->table.count; i++)
        if (rpi_layout_ranks(&c->table.rows[i].layout) > c->planned.machine.ranks_per_host)
            return !c->planned.link_given;
    return false;
}

static rp_status forecast(check *c) {
    for (int i = 0; i < c->table.count; i++) {
        const rpi_measured_row *row = &c->table.rows[i];
        rp_status status =
            rpi_forecast_step(&row->layout, &c->planned.machine, &c->forecasts[i]);
        if (status != RP_OK)
            return rpi_fail_context(status, "%s, line %d: ", c->s->file, row->line);
    }
    rpi_forecast_errors errors;
    RP_TRY(rpi_forecast_errors_of(c->table.rows, c->forecasts, c->table.count, &errors));
    c->errors = errors;
    return RP_OK;
}

/* ---- the facts that were fitted ---- */

static rp_status write_facts(const check *c) {
    rpi_replacement file;
    char text[FACTS_TEXT], source[SOURCE_TEXT];
    const rpi_plan_device *d = &c->fit.device;
    snprintf(source, sizeof source,
             "%d rows of %s, lines %d to %d, unseen rows err by %.1f percent", c->table.count,
             c->s->file, c->table.rows[0].line, c->table.rows[c->table.count - 1].line,
             100 * c->fit.unseen.mean);
    rpi_plan_device_print(d, source, text, sizeof text);
    RP_TRY(rpi_replacement_open(c->s->fit, &file));
    fprintf(file.stream, "# Fitted by redpoll plan check --fit; --devices takes it.\n%s", text);
    return rpi_replacement_close(&file, RP_OK);
}

/* ---- for people ---- */

static void print_rows(const check *c) {
    printf("  %5s  %6s  %4s  %4s  %5s  %5s  %10s  %10s  %8s\n", "line", "ranks", "tp", "pp",
           "dp", "micro", "measured", "predicted", "error");
    for (int i = 0; i < c->table.count; i++) {
        const rpi_measured_row *row = &c->table.rows[i];
        const rpi_training_layout *l = &row->layout;
        const rpi_forecast *f = &c->forecasts[i];
        char texts[2][RPI_TIME_BYTES];
        bool is_covered = row->step_s >= f->low_s && row->step_s <= f->high_s;
        printf("  %5d  %6lld  %4lld  %4lld  %5lld  %5lld  %10s  %10s  %+6.1f %%%s\n", row->line,
               (long long)rpi_layout_ranks(l), (long long)l->tensor, (long long)l->pipeline,
               (long long)l->data, (long long)l->micro_batch,
               rpi_time_text(row->step_s, texts[0]), rpi_time_text(f->step_s, texts[1]),
               100 * (f->step_s / row->step_s - 1), is_covered ? "" : "  outside");
    }
    putchar('\n');
}

static void print_errors(const rpi_forecast_errors *e) {
    printf("  error: mean %.2f %%, median %.2f %%, worst %.1f %%; on average %+.2f %%\n",
           100 * e->mean, 100 * e->median, 100 * e->worst, 100 * e->bias);
    printf("  one constant rate errs by %.2f %%: skill %.2f; order kept: Kendall's tau %.3f\n",
           100 * e->constant_mean, e->skill, e->order);
}

static void print_check(const check *c) {
    if (!c->s->brief) print_rows(c);
    printf("%d rows, %s:\n", c->table.count, c->planned.machine.device.name);
    print_errors(&c->errors);
    printf(
        "  %.1f %% of the rows are within their interval; 90 %% are within a factor of %.3f\n",
        100 * c->errors.covered, c->errors.factor);
    if (c->table.unused[0]) printf("  columns that were not used: %s\n", c->table.unused);
    if (!c->s->fit) return;
    printf("fitted to these rows:\n");
    print_errors(&c->fit.own);
    printf("fitted to four fifths of them, of the fifth that it has not seen:\n");
    print_errors(&c->fit.unseen);
    printf("  90 %% are within a factor of %.3f, which is the interval of what is in %s\n",
           c->fit.unseen.factor, c->s->fit);
}

/* ---- for programs ---- */

static void add_errors(cJSON *object, const char *name, const rpi_forecast_errors *e) {
    cJSON *all = cJSON_AddObjectToObject(object, name);
    cJSON_AddNumberToObject(all, "mean", e->mean);
    cJSON_AddNumberToObject(all, "median", e->median);
    cJSON_AddNumberToObject(all, "worst", e->worst);
    cJSON_AddNumberToObject(all, "bias", e->bias);
    cJSON_AddNumberToObject(all, "constant_mean", e->constant_mean);
    cJSON_AddNumberToObject(all, "skill", e->skill);
    cJSON_AddNumberToObject(all, "tau", e->order);
    cJSON_AddNumberToObject(all, "factor", e->factor);
}

static cJSON *rows_json(const check *c) {
    cJSON *rows = cJSON_CreateArray();
    for (int i = 0; i < c->table.count; i++) {
        const rpi_forecast *f = &c->forecasts[i];
        cJSON *row = cJSON_CreateObject();
        cJSON_AddNumberToObject(row, "line", c->table.rows[i].line);
        cJSON_AddNumberToObject(row, "measured_s", c->table.rows[i].step_s);
        cJSON_AddNumberToObject(row, "predicted_s", f->step_s);
        cJSON_AddNumberToObject(row, "low_s", f->low_s);
        cJSON_AddNumberToObject(row, "high_s", f->high_s);
        cJSON_AddItemToArray(rows, row);
    }
    return rows;
}

static void print_json(const check *c) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "op", "check");
    cJSON_AddStringToObject(object, "device", c->planned.machine.device.name);
    cJSON_AddNumberToObject(object, "count", c->table.count);
    add_errors(object, "errors", &c->errors);
    cJSON_AddNumberToObject(object, "covered", c->errors.covered);
    if (c->s->fit) {
        add_errors(object, "fitted", &c->fit.own);
        add_errors(object, "unseen", &c->fit.unseen);
        cJSON *facts = cJSON_AddObjectToObject(object, "facts");
        for (int i = 0; i < RPI_FACTS; i++)
            if (c->fit.device.facts[i].kind == RPI_KNOWN_FITTED)
                cJSON_AddNumberToObject(facts, rpi_fact_at(i)->name,
                                        c->fit.device.facts[i].value);
    }
    if (!c->s->brief) cJSON_AddItemToObject(object, "rows", rows_json(c));
    rpi_command_print_json(object);
}

/* ---- the command ---- */

static rp_status read_all(check *c) {
    RP_TRY(rpi_plan_training_read(&c->s->training, false, &c->planned));
    RP_TRY(read_table(c));
    if (needs_link(c))
        return RP_FAIL(INVALID,
                       "rows are on several hosts: how fast is the link of one? --link "
                       "200Gbit,5us");
    return RP_OK;
}

static rp_status compare(check *c) {
    RP_TRY(forecast(c));
    if (!c->s->fit) return RP_OK;
    RP_TRY(rpi_forecast_fit(c->table.rows, c->table.count, &c->planned.machine, &c->fit));
    return write_facts(c);
}

static rp_status work(void *context) {
    const settings *s = context;
    check c = {.s = s};
    if (!s->file)
        return RP_FAIL(INVALID, "which table of measured trainings? docs/planning.md has its "
                                "columns");
    rp_status status = read_all(&c);
    if (status == RP_OK)
        status = rpi_alloc_array((size_t)c.table.count, sizeof *c.forecasts, "forecasts",
                                 &c.forecasts);
    if (status == RP_OK) status = compare(&c);
    if (status == RP_OK && s->json) print_json(&c);
    if (status == RP_OK && !s->json) print_check(&c);
    rpi_free(c.forecasts);
    rpi_free(c.table.rows);
    rpi_planned_training_close(&c.planned);
    return rpi_plan_mistake(status);
}

static int run(int argc, char **argv) {
    settings s = {0};
    return rpi_command_work(&rpi_command_plan_check, argc, argv, &s, &s.file, work);
}

const rpi_command rpi_command_plan_check = {
    .name = "plan check",
    .summary = "compare forecasts of 'redpoll plan train' with trainings that were measured",
    .words = "FILE [OPTIONS]",
    .about =
        "Reads a table of measured trainings (comma-separated values; docs/planning.md has its "
        "columns), forecasts each row, and prints the error by row, its mean and median, how "
        "much less that is than the error of one constant rate (skill), whether the order of "
        "rows is kept (Kendall's tau), and how many rows are within their interval. Options "
        "say "
        "what no column does. --fit chooses the device's efficiency so that rows are met, and "
        "says how far it is from rows that it has not seen.",
    .examples = "  redpoll plan check history.csv --device a100-80g --link 200Gbit,5us\n"
                "  redpoll plan check history.csv --device a100-80g \\\n"
                "      --link 200Gbit,5us --fit mine.txt\n"
                "  redpoll plan train --devices mine.txt --device a100-80g \\\n"
                "      --link 200Gbit,5us --hosts 2 --global-batch-size 256\n",
    .options = options,
    .run = run,
};
