#include "cli/report/csv_tables.h"

#include "base/folder.h"
#include "base/status.h"
#include "cli/report/comparison.h"
#include "cli/report/csv_cell.h"
#include "cli/report/run_table.h"

#include <math.h>
#include <string.h>

typedef enum table { STEPS, EVALUATIONS, RUNS, SETTINGS, BENCH, FORECASTS, TABLES } table;

struct rpi_csv_tables {
    rpi_output_file files[TABLES];
    int count; /* 1: steps alone */
};

static const struct {
    const char *name, *heading; /* heading NULL: with the columns of others */
} tables_of[TABLES] = {
    [STEPS] = {"steps.csv", NULL},
    [EVALUATIONS] = {"evaluations.csv",
                     "run,step,test_accuracy,test_loss,test_images,test_perplexity,"
                     "consensus_distance"},
    [RUNS] = {"runs.csv", NULL},
    [SETTINGS] = {"settings.csv", "run,setting,value"},
    [FORECASTS] = {"forecasts.csv", "run,item,unit,predicted,low,high,measured"},
    [BENCH] = {"bench.csv",
               "run,op,codec,algorithm,transport,dtype,ranks,count,bytes,time_s,time_min_s,"
               "time_max_s,algbw_bytes_s,busbw_bytes_s,wire_bytes,rel_l2_error,encode_bytes_s,"
               "decode_add_bytes_s,memcpy_bytes_s,encoded_bytes"},
};

static void put_number(FILE *stream, double value) {
    char text[RPI_QUANTITY_TEXT];
    fprintf(stream, ",%s", rpi_exact_text(value, text));
}

static void write_heading(rpi_csv_tables *tables, int which) {
    FILE *stream = tables->files[which].stream;
    if (tables_of[which].heading) {
        fprintf(stream, "%s\n", tables_of[which].heading);
        return;
    }
    if (which == STEPS) {
        fprintf(stream, "run,step");
        for (int i = 0; i < RPI_STEP_VALUES; i++) fprintf(stream, ",%s", rpi_step_keys[i]);
    }
    for (int i = 0; which == RUNS && rpi_comparison_column_at(i); i++)
        fprintf(stream, "%s%s", i ? "," : "", rpi_comparison_column_at(i)->key);
    fprintf(stream, "\n");
}

static rp_status open_folder(const char *path, rpi_csv_tables *tables) {
    RP_TRY(rpi_folder_make(path));
    for (int i = 0; i < TABLES; i++) {
        char file[4096];
        if ((size_t)snprintf(file, sizeof file, "%s/%s", path, tables_of[i].name) >=
            sizeof file)
            return RP_FAIL(IO, "the path %s is too long", path);
        RP_TRY(rpi_output_open(file, &tables->files[i]));
        tables->count = i + 1;
    }
    return RP_OK;
}

rp_status rpi_csv_open(const char *path, rpi_csv_tables **out_tables) {
    rpi_csv_tables *tables = NULL;
    size_t length = strlen(path);
    RP_TRY(rpi_alloc(sizeof *tables, "tables", &tables));
    bool single = length > 4 && strcmp(path + length - 4, ".csv") == 0;
    rp_status status =
        single ? rpi_output_open(path, &tables->files[STEPS]) : open_folder(path, tables);
    if (status == RP_OK && single) tables->count = 1;
    if (status != RP_OK) {
        rpi_csv_discard(tables);
        return status;
    }
    for (int i = 0; i < tables->count; i++) write_heading(tables, i);
    *out_tables = tables;
    return RP_OK;
}

static void add_bench(FILE *stream, const char *label, const rpi_report_bench_row *row) {
    const char *texts[] = {row->op, row->codec, row->algorithm, row->transport, row->dtype};
    double numbers[] = {row->ranks,          row->count,          row->bytes,
                        row->time_s,         row->time_min_s,     row->time_max_s,
                        row->algbw,          row->busbw,          row->wire_bytes,
                        row->error,          row->encode_bytes_s, row->decode_add_bytes_s,
                        row->memcpy_bytes_s, row->encoded_bytes};
    rpi_csv_put_text(stream, label);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        fputc(',', stream);
        rpi_csv_put_text(stream, texts[i]);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        put_number(stream, numbers[i]);
    fputc('\n', stream);
}

void rpi_csv_add(rpi_csv_tables *tables, const char *label, const rpi_metrics_file *file) {
    FILE *stream = tables->files[STEPS].stream;
    for (size_t i = 0; i < file->step_count; i++) {
        rpi_csv_put_text(stream, label);
        fprintf(stream, ",%lld", (long long)file->steps[i].step);
        for (int v = 0; v < RPI_STEP_VALUES; v++) put_number(stream, file->steps[i].values[v]);
        fputc('\n', stream);
    }
    if (tables->count == 1) return;
    stream = tables->files[EVALUATIONS].stream;
    for (size_t i = 0; i < file->evaluation_count; i++) {
        const rpi_evaluation_row *row = &file->evaluations[i];
        rpi_csv_put_text(stream, label);
        fprintf(stream, ",%lld", (long long)row->step);
        put_number(stream, row->accuracy);
        put_number(stream, row->loss);
        put_number(stream, row->images);
        put_number(stream, row->perplexity);
        put_number(stream, row->consensus);
        fputc('\n', stream);
    }
    for (size_t i = 0; i < file->bench_count; i++)
        add_bench(tables->files[BENCH].stream, label, &file->bench[i]);
}

static void add_run(rpi_csv_tables *tables, const rpi_report_run *run) {
    FILE *stream = tables->files[RUNS].stream;
    const rpi_comparison_column *column;
    char text[RPI_QUANTITY_TEXT];
    for (int i = 0; (column = rpi_comparison_column_at(i)) != NULL; i++) {
        if (column->value) {
            put_number(stream, column->value(run));
            continue;
        }
        const char *cell = column->cell(run, text);
        if (i > 0) fputc(',', stream);
        rpi_csv_put_text(stream, strcmp(cell, "–") == 0 ? "" : cell);
    }
    fputc('\n', stream);
    rpi_run_table_csv(tables->files[FORECASTS].stream, run);
    stream = tables->files[SETTINGS].stream;
    for (int i = 0; i < run->setting_count; i++) {
        rpi_csv_put_text(stream, run->label);
        fputc(',', stream);
        rpi_csv_put_text(stream, run->settings[i].name);
        fputc(',', stream);
        rpi_csv_put_text(stream, run->settings[i].value);
        fputc('\n', stream);
    }
}

rp_status rpi_csv_commit(rpi_csv_tables *tables, const rpi_report *report) {
    for (int r = 0; tables->count > 1 && r < report->run_count; r++)
        add_run(tables, &report->runs[r]);
    rp_status status = RP_OK;
    if (tables->count == 1 && report->run_count == 0)
        status = RP_FAIL(INVALID,
                         "%s would hold the steps of runs, and there are none; give --csv a "
                         "folder for the lines of benchmarks",
                         tables->files[STEPS].replacement.path);
    for (int i = 0; i < tables->count && status == RP_OK; i++)
        status = rpi_output_finish(&tables->files[i]);
    for (int i = 0; i < tables->count && status == RP_OK; i++)
        status = rpi_output_commit(&tables->files[i]);
    rpi_csv_discard(tables);
    return status;
}

void rpi_csv_discard(rpi_csv_tables *tables) {
    if (!tables) return;
    for (int i = 0; i < TABLES; i++) rpi_output_discard(&tables->files[i]);
    rpi_free(tables);
}
