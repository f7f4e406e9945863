#include "cli/report/report_json.h"

#include "cli/command.h"
#include "cli/report/comparison.h"
#include "cli/report/run_table.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <string.h>

static void add(cJSON *object, const char *name, double value) {
    if (isfinite(value))
        cJSON_AddNumberToObject(object, name, value);
    else
        cJSON_AddNullToObject(object, name);
}

static cJSON *item_json(const rpi_report_run *run, int index) {
    const rpi_run_forecast *f = run->forecast;
    const rpi_run_item_info *info = rpi_run_item_at(index);
    double measured = rpi_run_measured(run, index);
    cJSON *item = cJSON_CreateObject();
    cJSON_AddStringToObject(item, "item", info->key);
    cJSON_AddStringToObject(item, "unit", info->unit);
    add(item, "predicted", f->values[index]);
    add(item, "low", f->low[index]);
    add(item, "high", f->high[index]);
    add(item, "measured", measured);
    add(item, "error", measured > 0 ? f->values[index] / measured - 1 : NAN);
    return item;
}

static void add_forecast(cJSON *object, const rpi_report_run *run) {
    const rpi_run_forecast *f = run->forecast;
    if (run->no_forecast) cJSON_AddStringToObject(object, "no_forecast", run->no_forecast);
    if (!f) return;
    cJSON *forecast = cJSON_AddObjectToObject(object, "forecast");
    cJSON *machine = cJSON_AddObjectToObject(forecast, "machine");
    cJSON_AddStringToObject(machine, "cpu", f->cpu);
    add(machine, "ranks", f->ranks);
    add(machine, "threads", f->threads);
    if (f->remark[0]) cJSON_AddStringToObject(forecast, "remark", f->remark);
    cJSON *items = cJSON_AddArrayToObject(forecast, "items");
    for (int i = 0; i < RPI_RUN_ITEMS; i++) cJSON_AddItemToArray(items, item_json(run, i));
}

static cJSON *run_json(const rpi_report_run *run) {
    cJSON *object = cJSON_CreateObject();
    const rpi_comparison_column *column;
    char text[RPI_QUANTITY_TEXT];
    for (int i = 0; (column = rpi_comparison_column_at(i)) != NULL; i++) {
        const char *cell = column->value ? "" : column->cell(run, text);
        if (column->value)
            add(object, column->key, column->value(run));
        else if (strcmp(cell, "–") == 0)
            cJSON_AddNullToObject(object, column->key);
        else
            cJSON_AddStringToObject(object, column->key, cell);
    }
    add_forecast(object, run);
    return object;
}

void rpi_report_print_json(const rpi_report *report) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "op", "report");
    cJSON *runs = cJSON_AddArrayToObject(object, "runs");
    for (int r = 0; r < report->run_count; r++)
        cJSON_AddItemToArray(runs, run_json(&report->runs[r]));
    rpi_command_print_json(object);
}
