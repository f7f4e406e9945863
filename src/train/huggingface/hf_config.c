#include "train/huggingface/hf_config.h"

#include "base/memory.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "train/tokenizers/json_read.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_BYTES = 1 << 20 };

/* ---- reading ---- */

static rp_status find_family(const char *path, const cJSON *root,
                             const rpi_hf_family **out_family) {
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(root, "model_type");
    if (!cJSON_IsObject(root) || !cJSON_IsString(type))
        return RP_FAIL(CORRUPT, "%s: 'model_type' is missing, which says what model it is",
                       path);
    rp_status status = rpi_hf_family_of_type(type->valuestring, out_family);
    return status == RP_OK ? RP_OK : rpi_fail_context(status, "%s: ", path);
}

static bool is_said(const cJSON *value, const char *json) {
    if (!json) return false;
    cJSON *wanted = cJSON_Parse(json);
    bool same =
        cJSON_IsNumber(wanted) && cJSON_IsNumber(value)
            ? fabs(wanted->valuedouble - value->valuedouble) <= 1e-9 * fabs(wanted->valuedouble)
            : cJSON_Compare(wanted, value, true);
    cJSON_Delete(wanted);
    return same;
}

static bool is_multiple(const rpi_hf_constant *c, const cJSON *root, const cJSON *value) {
    const cJSON *of = c->of_key ? cJSON_GetObjectItemCaseSensitive(root, c->of_key) : NULL;
    return of && cJSON_IsNumber(of) && cJSON_IsNumber(value) &&
           value->valuedouble == c->times * of->valuedouble;
}

static rp_status check_constants(const char *path, const rpi_hf_family *family,
                                 const cJSON *root) {
    for (const rpi_hf_constant *c = family->constants; c->key; c++) {
        const cJSON *value = cJSON_GetObjectItemCaseSensitive(root, c->key);
        if (!value || is_said(value, c->json) || is_said(value, c->also) ||
            is_multiple(c, root, value))
            continue;
        char *text = cJSON_PrintUnformatted(value);
        rp_status status = RP_FAIL(INVALID, "%s: '%s' is %.100s; model %s has only %s%s%s",
                                   path, c->key, text ? text : "?", family->model, c->json,
                                   c->also ? " or " : "", c->also ? c->also : "");
        cJSON_free(text);
        return status;
    }
    return RP_OK;
}

static rp_status read_size(const char *path, const cJSON *root, const rpi_hf_size *size,
                           int64_t *out_value) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, size->key);
    if (!item) return RP_FAIL(CORRUPT, "%s: '%s' is missing", path, size->key);
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 1 && item->valuedouble <= 1e9) ||
        item->valuedouble != floor(item->valuedouble))
        return RP_FAIL(CORRUPT, "%s: '%s' is no whole number above 0", path, size->key);
    *out_value = (int64_t)item->valuedouble;
    return RP_OK;
}

static rp_status read_model(const char *path, const cJSON *root, char model[RPI_MODEL_TEXT],
                            const rpi_hf_family **out_family) {
    const rpi_hf_family *family = NULL;
    rpi_model_choice choice;
    RP_TRY(find_family(path, root, &family));
    size_t used = (size_t)snprintf(model, RPI_MODEL_TEXT, "%s", family->model);
    for (const rpi_hf_size *s = family->sizes; s->option; s++) {
        int64_t value = 0;
        RP_TRY(read_size(path, root, s, &value));
        if (used < RPI_MODEL_TEXT)
            used +=
                (size_t)snprintf(model + used, RPI_MODEL_TEXT - used, "%c%s=%lld",
                                 s == family->sizes ? ':' : ',', s->option, (long long)value);
    }
    if (used >= RPI_MODEL_TEXT) return RP_FAIL(INVALID, "%s: its sizes are too long", path);
    RP_TRY(check_constants(path, family, root));
    rp_status status = rpi_model_parse(model, &choice);
    if (status != RP_OK) return rpi_fail_context(status, "%s: ", path);
    *out_family = family;
    return RP_OK;
}

rp_status rpi_hf_config_read(const char *folder, char model[RPI_MODEL_TEXT],
                             const rpi_hf_family **out_family) {
    char path[RPI_PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    cJSON *root = NULL;
    if (snprintf(path, sizeof path, "%s/config.json", folder) >= (int)sizeof path)
        return RP_FAIL(INVALID, "the path %s is too long", folder);
    rp_status status = rpi_regular_file_read(path, MOST_BYTES, &text, &bytes);
    if (status == RP_NOT_FOUND)
        return RP_FAIL(NOT_FOUND,
                       "%s is missing: a Hugging Face folder has config.json and "
                       "model.safetensors",
                       path);
    RP_TRY(status);
    status = rpi_json_parse(path, text, bytes, &root);
    rpi_free(text);
    if (status == RP_OK) status = read_model(path, root, model, out_family);
    cJSON_Delete(root);
    return status;
}

/* ---- writing ---- */

int64_t rpi_hf_option_value(const rpi_model_choice *choice, const char *name) {
    int64_t value = 0;
    for (const rpi_option *o = choice->model->options; o && o->name; o++)
        if (strcmp(o->name, name) == 0 && o->type == RPI_OPTION_COUNT)
            memcpy(&value, choice->options + o->offset, sizeof value);
    return value;
}

static void add_text_end(cJSON *root, const rpi_hf_family *family, int64_t vocabulary) {
    static const char *const keys[] = {"bos_token_id", "eos_token_id"};
    for (int i = 0; i < 2; i++) {
        if (family->text_end < vocabulary)
            cJSON_AddNumberToObject(root, keys[i], (double)family->text_end);
        else
            cJSON_AddNullToObject(root, keys[i]);
    }
}

static cJSON *make_config(const rpi_hf_family *family, const rpi_model_choice *choice) {
    cJSON *root = cJSON_Parse(family->written);
    cJSON *architectures = cJSON_AddArrayToObject(root, "architectures");
    cJSON_AddItemToArray(architectures, cJSON_CreateString(family->architecture));
    cJSON_AddStringToObject(root, "model_type", family->model_type);
    cJSON_AddStringToObject(root, "torch_dtype", "float32");
    for (const rpi_hf_size *s = family->sizes; s->option; s++)
        cJSON_AddNumberToObject(root, s->key, (double)rpi_hf_option_value(choice, s->option));
    for (const rpi_hf_constant *c = family->constants; c->key; c++)
        cJSON_AddItemToObject(root, c->key, cJSON_Parse(c->json));
    add_text_end(root, family, rpi_hf_option_value(choice, "vocabulary"));
    return root;
}

rp_status rpi_hf_config_text(const rpi_hf_family *family, const rpi_model_choice *choice,
                             char **out_text) {
    cJSON *root = make_config(family, choice);
    char *text = cJSON_Print(root);
    cJSON_Delete(root);
    if (!text) return RP_FAIL(NOMEM, "no memory for config.json");
    rp_status status = rpi_strdup(text, out_text);
    cJSON_free(text);
    return status;
}
