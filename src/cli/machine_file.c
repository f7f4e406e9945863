#include "cli/machine_file.h"

#include "base/memory.h"
#include "base/regular_file.h"
#include "base/status.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

enum { MOST_FILE = 1 << 22 };

/* ---- written ---- */

static cJSON *item_json(const rpi_machine_item *item) {
    const rpi_machine_work_info *info = rpi_machine_work_at((int)item->work);
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "what", info->name);
    if (info->has_name) cJSON_AddStringToObject(object, "name", item->name);
    if (info->passes[0]) cJSON_AddStringToObject(object, "pass", info->passes[item->pass]);
    for (int i = 0; i < RPI_RATE_SIDES && info->sides[i]; i++)
        cJSON_AddNumberToObject(object, info->sides[i], item->at[i]);
    cJSON_AddStringToObject(object, "unit", info->unit);
    cJSON_AddNumberToObject(object, "value", item->value);
    cJSON_AddNumberToObject(object, "low", item->low);
    cJSON_AddNumberToObject(object, "high", item->high);
    cJSON_AddNumberToObject(object, "repeats", item->repeats);
    return object;
}

cJSON *rpi_machine_json(const rpi_machine_account *a) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "op", "machine");
    cJSON_AddStringToObject(object, "cpu", a->cpu);
    cJSON_AddNumberToObject(object, "ranks", a->ranks);
    cJSON_AddNumberToObject(object, "threads", a->threads);
    cJSON_AddNumberToObject(object, "rank_memory_bytes", a->memory_bytes);
    cJSON *items = cJSON_AddArrayToObject(object, "items");
    for (int i = 0; i < a->count; i++) cJSON_AddItemToArray(items, item_json(&a->items[i]));
    return object;
}

rp_status rpi_machine_file_write(const char *path, const rpi_machine_account *a) {
    rpi_replacement file;
    cJSON *object = rpi_machine_json(a);
    char *text = object ? cJSON_Print(object) : NULL;
    cJSON_Delete(object);
    if (!text) return RP_FAIL(NOMEM, "no memory for %s", path);
    rp_status status = rpi_replacement_open(path, &file);
    if (status == RP_OK) {
        fprintf(file.stream, "%s\n", text);
        status = rpi_replacement_close(&file, RP_OK);
    }
    cJSON_free(text);
    return status;
}

/* ---- read ---- */

static rp_status number(const cJSON *object, const char *key, double *out) {
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsNumber(value)) return RP_FAIL(CORRUPT, "%s is missing, or no number", key);
    *out = value->valuedouble;
    return RP_OK;
}

static rp_status text(const cJSON *object, const char *key, char *out, size_t bytes) {
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsString(value) || strlen(value->valuestring) >= bytes)
        return RP_FAIL(CORRUPT, "%s is missing, or no short text", key);
    memcpy(out, value->valuestring, strlen(value->valuestring) + 1);
    return RP_OK;
}

static rp_status read_work(const cJSON *object, rpi_machine_item *out) {
    char what[RPI_MACHINE_NAME], unit[RPI_MACHINE_NAME];
    const rpi_machine_work_info *info;
    RP_TRY(text(object, "what", what, sizeof what));
    int work = 0;
    while ((info = rpi_machine_work_at(work)) != NULL && strcmp(info->name, what) != 0) work++;
    if (!info) return RP_FAIL(CORRUPT, "'%s' is no work of a machine", what);
    out->work = (rpi_machine_work)work;
    RP_TRY(text(object, "unit", unit, sizeof unit));
    if (strcmp(unit, info->unit) != 0)
        return RP_FAIL(CORRUPT, "%s is in %s, not in %s", what, info->unit, unit);
    return info->has_name ? text(object, "name", out->name, sizeof out->name) : RP_OK;
}

static rp_status read_pass(const cJSON *object, rpi_machine_item *out) {
    const rpi_machine_work_info *info = rpi_machine_work_at((int)out->work);
    char pass[RPI_MACHINE_NAME];
    if (!info->passes[0]) return RP_OK;
    RP_TRY(text(object, "pass", pass, sizeof pass));
    for (out->pass = 0; info->passes[out->pass]; out->pass++)
        if (strcmp(info->passes[out->pass], pass) == 0) return RP_OK;
    return RP_FAIL(CORRUPT, "'%s' is no pass of %s", pass, info->name);
}

static rp_status read_item(const cJSON *object, rpi_machine_item *out) {
    double repeats;
    *out = (rpi_machine_item){0};
    RP_TRY(read_work(object, out));
    RP_TRY(read_pass(object, out));
    const rpi_machine_work_info *info = rpi_machine_work_at((int)out->work);
    for (int i = 0; i < RPI_RATE_SIDES && info->sides[i]; i++)
        RP_TRY(number(object, info->sides[i], &out->at[i]));
    RP_TRY(number(object, "value", &out->value));
    RP_TRY(number(object, "low", &out->low));
    RP_TRY(number(object, "high", &out->high));
    RP_TRY(number(object, "repeats", &repeats));
    out->repeats = repeats >= 1 && repeats <= 1e9 ? (int)repeats : 1;
    return RP_OK;
}

static rp_status read_whole(const cJSON *object, const char *key, double most, int *out) {
    double value;
    RP_TRY(number(object, key, &value));
    if (!(value >= 1 && value <= most)) return RP_FAIL(CORRUPT, "%s of %g is none", key, value);
    *out = (int)value;
    return RP_OK;
}

static rp_status read_account(const cJSON *root, rpi_machine_account *a) {
    char op[RPI_MACHINE_NAME];
    const cJSON *items = cJSON_GetObjectItemCaseSensitive(root, "items"), *at;
    int index = 0;
    if (text(root, "op", op, sizeof op) != RP_OK || strcmp(op, "machine") != 0 ||
        !cJSON_IsArray(items))
        return RP_FAIL(CORRUPT, "it is no machine; redpoll bench machine -o writes one");
    RP_TRY(text(root, "cpu", a->cpu, sizeof a->cpu));
    RP_TRY(read_whole(root, "ranks", 65536, &a->ranks));
    RP_TRY(read_whole(root, "threads", 65536, &a->threads));
    RP_TRY(number(root, "rank_memory_bytes", &a->memory_bytes));
    if (!(a->memory_bytes > 0))
        return RP_FAIL(CORRUPT, "rank_memory_bytes of %g is none", a->memory_bytes);
    cJSON_ArrayForEach(at, items) {
        rpi_machine_item item;
        rp_status status = read_item(at, &item);
        if (status == RP_OK) status = rpi_machine_account_add(a, &item);
        if (status != RP_OK) return rpi_fail_context(status, "item %d: ", index);
        index++;
    }
    return RP_OK;
}

rp_status rpi_machine_parse(const char *bytes, size_t count, rpi_machine_account *a) {
    *a = (rpi_machine_account){0};
    cJSON *root = cJSON_ParseWithLengthOpts(bytes, count, NULL, false);
    rp_status status =
        cJSON_IsObject(root)
            ? read_account(root, a)
            : RP_FAIL(CORRUPT, "it is no JSON; redpoll bench machine -o writes it");
    cJSON_Delete(root);
    return status;
}

rp_status rpi_machine_file_read(const char *path, rpi_machine_account *a) {
    char *bytes = NULL;
    size_t count;
    rp_status read = rpi_regular_file_read(path, MOST_FILE, &bytes, &count);
    if (read == RP_NOT_FOUND)
        return RP_FAIL(NOT_FOUND, "%s is missing; redpoll bench machine -o %s measures it",
                       path, path);
    RP_TRY(read);
    rp_status status = rpi_machine_parse(bytes, count, a);
    rpi_free(bytes);
    return status == RP_OK ? status : rpi_fail_context(status, "%s: ", path);
}
