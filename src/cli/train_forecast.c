#include "cli/train_forecast.h"

#include "base/memory.h"
#include "base/status.h"
#include "cli/machine_file.h"
#include "cli/numbers.h"
#include "cli/plan_scaling.h"
#include "cli/report/arena_text.h"
#include "cli/report/metrics_file.h"
#include "cli/report/quantity.h"
#include "cli/report/run_table.h"
#include "cli/run_forecast.h"
#include "train/models/model.h"

#include <string.h>

static rp_status check_machine(const char *path) {
    rpi_machine_account *account = NULL;
    RP_TRY(rpi_alloc(sizeof *account, "a machine", &account));
    rp_status status = rpi_machine_file_read(path, account);
    rpi_free(account);
    return status;
}

rp_status rpi_train_forecast_check(const rpi_train_settings *s) {
    const rpi_scaling_kind *kind;
    rpi_model_choice choice;
    if (!s->machine) return RP_OK;
    RP_TRY(rpi_model_parse(s->train.model, &choice));
    if (!choice.model->transformer)
        return RP_FAIL(INVALID,
                       "--machine predicts decoders of transformer blocks, gpt2 and llama; %s "
                       "is none",
                       choice.model->name);
    if (strcmp(s->train.strategy, "single") != 0) {
        rp_status status = rpi_scaling_kind_find(s->train.strategy, &kind);
        if (status != RP_OK) return rpi_fail_context(status, "--machine: ");
    }
    return check_machine(s->machine);
}

/* ---- before the first step ---- */

static rp_status make(const rpi_train_settings *s, rpi_arena *arena, rpi_run_forecast *out) {
    rpi_metrics_file file;
    rpi_run_record record;
    RP_TRY(rpi_metrics_file_open(s->train.out, arena, &file));
    rp_status status = rpi_run_record_read(file.header, &record);
    if (status == RP_OK) status = rpi_run_forecast_make(&record, s->machine, out);
    rpi_metrics_file_close(&file);
    return status;
}

static rp_status keep_machine(const rpi_train_settings *s, rpi_arena *arena) {
    rpi_machine_account *account = NULL;
    const char *path = "";
    RP_TRY(rpi_arena_printf(arena, &path, "%s/%s", s->train.out, RPI_RUN_MACHINE));
    RP_TRY(rpi_alloc(sizeof *account, "a machine", &account));
    rp_status status = rpi_machine_file_read(s->machine, account);
    if (status == RP_OK) status = rpi_machine_file_write(path, account);
    rpi_free(account);
    return status;
}

static void print_forecast(FILE *stream, const rpi_run_forecast *f, int64_t steps) {
    char step[RPI_TIME_BYTES], low[RPI_TIME_BYTES], high[RPI_TIME_BYTES], all[RPI_TIME_BYTES];
    char exposed[RPI_TIME_BYTES], sent[RPI_QUANTITY_TEXT], memory[RPI_QUANTITY_TEXT];
    fprintf(stream, "predicted: a step in %s (9 of 10 times %s to %s), %.1f tokens/s; ",
            rpi_time_text(f->values[RPI_RUN_STEP], step),
            rpi_time_text(f->low[RPI_RUN_STEP], low),
            rpi_time_text(f->high[RPI_RUN_STEP], high), f->values[RPI_RUN_RATE]);
    fprintf(stream, "%s sent by a rank, %s exposed; %s in memory; all steps in %s\n",
            rpi_quantity_text(RPI_BYTES, f->values[RPI_RUN_SENT], sent),
            rpi_time_text(f->values[RPI_RUN_EXPOSED], exposed),
            rpi_quantity_text(RPI_BYTES, f->values[RPI_RUN_MEMORY], memory),
            rpi_time_text(f->values[RPI_RUN_STEP] * (double)steps, all));
    if (f->remark[0]) fprintf(stream, "  %s\n", f->remark);
}

void rpi_train_forecast_print(const void *settings, FILE *stream, int64_t steps) {
    const rpi_train_settings *s = settings;
    rpi_run_forecast forecast;
    rpi_arena *arena = NULL;
    rp_status status = rpi_arena_create(1 << 14, &arena);
    if (status == RP_OK) status = keep_machine(s, arena);
    if (status == RP_OK) status = make(s, arena, &forecast);
    if (status == RP_OK)
        print_forecast(stream, &forecast, steps);
    else
        fprintf(stream, "no forecast: %s\n", rp_last_error()->message);
    rpi_arena_destroy(arena);
}
