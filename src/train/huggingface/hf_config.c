#include "train/huggingface/hf_config.h"

#include "base/memory.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "train/huggingface/hf_activation.h"
#include "train/huggingface/hf_number.h"
#include "train/huggingface/hf_rope.h"
#include "train/huggingface/hf_ties.h"
#include "train/huggingface/hf_windows.h"
#include "train/tokenizers/json_read.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 1 << 20, MOST_KEY = 64 };

/* ---- keys, which may lie in an object ---- */

static const cJSON *find_key(const cJSON *root, const char *key) {
    char outer[MOST_KEY];
    const char *dot = strchr(key, '.');
    if (!dot) return cJSON_GetObjectItemCaseSensitive(root, key);
    snprintf(outer, sizeof outer, "%.*s", (int)(dot - key), key);
    const cJSON *object = strcmp(outer, "rope_parameters") == 0
                              ? rpi_hf_rope_object(root)
                              : cJSON_GetObjectItemCaseSensitive(root, outer);
    return cJSON_GetObjectItemCaseSensitive(object, dot + 1);
}

static bool is_there(const cJSON *item) {
    return item && !cJSON_IsNull(item);
}

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

static rp_status check_constants(const char *path, const rpi_hf_family *family,
                                 const cJSON *root) {
    for (const rpi_hf_constant *c = family->constants; c->key; c++) {
        const cJSON *value = find_key(root, c->key);
        if (!value || is_said(value, c->json) || is_said(value, c->also)) continue;
        char *text = cJSON_PrintUnformatted(value);
        rp_status status =
            RP_FAIL(INVALID, "%s: '%s' is %.100s; model %s has only %s%s%s", path, c->key,
                    text ? text : "?", family->model, c->json ? c->json : "",
                    c->json && c->also ? " or " : "", c->also ? c->also : "");
        cJSON_free(text);
        return status;
    }
    return RP_OK;
}

/* Weights of few bits lie under other names, in layouts of each method's own. */
static rp_status check_quantization(const char *path, const cJSON *root) {
    const cJSON *how = find_key(root, "quantization_config");
    if (!is_there(how)) return RP_OK;
    const cJSON *method = cJSON_GetObjectItemCaseSensitive(how, "quant_method");
    return RP_FAIL(INVALID,
                   "%s: the weights are quantized (%.60s), and f32, bf16, f16 and f64 can be "
                   "read: load the folder with transformers, dequantize() and save it",
                   path, cJSON_IsString(method) ? method->valuestring : "quantization_config");
}

/* Is it what such an option takes? */
static rp_status check_value(const char *path, const cJSON *item, const rpi_option *option) {
    double most = option->max > 0 ? option->max : RPI_HF_LARGEST;
    switch (option->type) {
    case RPI_OPTION_COUNT: return rpi_hf_whole_check(path, item->string, item, 1, most);
    case RPI_OPTION_FLAG:
        if (cJSON_IsBool(item)) return RP_OK;
        return RP_FAIL(CORRUPT, "%s: '%s' is no true or false", path, item->string);
    default: return rpi_hf_real_check(path, item->string, item);
    }
}

static rp_status read_value(const char *path, const cJSON *item, const rpi_hf_option *row,
                            const rpi_option *option, char text[32]) {
    if (!is_there(item) && !row->absent)
        return RP_FAIL(CORRUPT, "%s: '%s' is missing", path, row->key);
    if (!is_there(item)) {
        snprintf(text, 32, "%s", item ? "" : row->absent);
        return RP_OK;
    }
    if (option->type == RPI_OPTION_TEXT) return rpi_hf_activation_read(path, item, text);
    RP_TRY(check_value(path, item, option));
    if (option->type == RPI_OPTION_FLAG)
        snprintf(text, 32, "%s", cJSON_IsTrue(item) ? "on" : "off");
    else
        snprintf(text, 32, "%.15g", item->valuedouble);
    return RP_OK;
}

/* By the other spelling of a key first. */
static const cJSON *find_spelt(const cJSON *root, const rpi_hf_family *family,
                               const char *key) {
    for (const rpi_hf_alias *a = family->aliases; a && a->alias; a++) {
        const cJSON *item = strcmp(a->key, key) == 0 ? find_key(root, a->alias) : NULL;
        if (is_there(item)) return item;
    }
    return find_key(root, key);
}

/* The value as our option takes it; "": what our model has without it. */
static rp_status read_option(const char *path, const cJSON *root, const rpi_hf_family *family,
                             const rpi_hf_option *row, const rpi_option *option,
                             char text[32]) {
    const cJSON *item = find_spelt(root, family, row->key);
    if (!is_there(item) && row->also) {
        const cJSON *other = find_key(root, row->also);
        item = other ? other : item;
    }
    return read_value(path, item, row, option, text);
}

/* Is the model, as its text stands, the same with this option behind it? */
static bool is_implied(const char *model, const char *before, const char *option,
                       const char *value) {
    char longer[RPI_MODEL_TEXT];
    int length = snprintf(longer, sizeof longer, "%s%s%s=%s", model, before, option, value);
    return length < RPI_MODEL_TEXT && rpi_model_is_same(model, longer);
}

/* Is the head's architecture among those that config.json names? */
static bool has_head(const cJSON *root, const rpi_hf_family *family) {
    const cJSON *name, *all = cJSON_GetObjectItemCaseSensitive(root, "architectures");
    if (!family->head_architecture) return false;
    cJSON_ArrayForEach(name, all) if (cJSON_IsString(name) &&
                                      strcmp(name->valuestring, family->head_architecture) ==
                                          0) return true;
    return false;
}

static rp_status read_options(const char *path, const cJSON *root, const rpi_hf_family *family,
                              char model[RPI_MODEL_TEXT]) {
    rpi_model_choice choice;
    RP_TRY(rpi_model_parse(family->model, &choice));
    size_t used = (size_t)snprintf(model, RPI_MODEL_TEXT, "%s", family->model);
    const char *before = ":";
    for (const rpi_hf_option *o = family->options; o->option && used < RPI_MODEL_TEXT; o++) {
        char text[32];
        const rpi_option *option = rpi_model_option(choice.model, o->option);
        if (!option) return RP_FAIL(INTERNAL, "%s has no %s", family->model, o->option);
        RP_TRY(read_option(path, root, family, o, option, text));
        if (!text[0] || (o->absent && is_implied(model, before, o->option, text))) continue;
        used += (size_t)snprintf(model + used, RPI_MODEL_TEXT - used, "%s%s=%s", before,
                                 o->option, text);
        before = ",";
    }
    const rpi_option *flag = family->flag ? rpi_model_option(choice.model, family->flag) : NULL;
    if (flag && flag->type == RPI_OPTION_FLAG && used < RPI_MODEL_TEXT)
        used += (size_t)snprintf(model + used, RPI_MODEL_TEXT - used, "%s%s=on", before,
                                 family->flag);
    if (family->has_layer_types && used < RPI_MODEL_TEXT) {
        RP_TRY(rpi_hf_windows_read(path, root, model + used, RPI_MODEL_TEXT - used));
        used = strlen(model);
    }
    if (family->is_rotary && used < RPI_MODEL_TEXT) {
        RP_TRY(rpi_hf_rope_read(path, root, model + used, RPI_MODEL_TEXT - used));
        used = strlen(model);
    }
    if (has_head(root, family) && used < RPI_MODEL_TEXT)
        used += (size_t)snprintf(model + used, RPI_MODEL_TEXT - used, "%s%s=on", before,
                                 family->head_flag);
    if (used >= RPI_MODEL_TEXT - 1) return RP_FAIL(INVALID, "%s: its sizes are too long", path);
    return RP_OK;
}

/* Two matrices in the files are two, whatever config.json says; as transformers has it. */
static rp_status untie(const char *folder, cJSON *root, const rpi_hf_family *family,
                       bool *out_untied) {
    static const char key[] = "tie_word_embeddings";
    *out_untied = false;
    if (!family->may_untie || !cJSON_IsTrue(find_key(root, key))) return RP_OK;
    RP_TRY(rpi_hf_folder_is_untied(folder, family, out_untied));
    if (*out_untied) cJSON_ReplaceItemInObjectCaseSensitive(root, key, cJSON_CreateBool(false));
    return RP_OK;
}

static rp_status read_model(const char *folder, const char *path, cJSON *root,
                            char model[RPI_MODEL_TEXT], const rpi_hf_family **out_family,
                            bool *out_untied) {
    const rpi_hf_family *family = NULL;
    rpi_model_choice choice;
    RP_TRY(find_family(path, root, &family));
    RP_TRY(check_quantization(path, root));
    RP_TRY(untie(folder, root, family, out_untied));
    RP_TRY(read_options(path, root, family, model));
    RP_TRY(check_constants(path, family, root));
    rp_status status = rpi_model_parse(model, &choice);
    if (status != RP_OK) return rpi_fail_context(status, "%s: ", path);
    *out_family = family;
    return RP_OK;
}

/* RP_NOT_FOUND: there is no such file. */
static rp_status read_json(const char *folder, const char *name, char path[RPI_PATH_BYTES],
                           cJSON **out_root) {
    char *text = NULL;
    size_t bytes = 0;
    if (snprintf(path, RPI_PATH_BYTES, "%s/%s", folder, name) >= RPI_PATH_BYTES)
        return RP_FAIL(INVALID, "the path %s is too long", folder);
    RP_TRY(rpi_regular_file_read(path, MOST_BYTES, &text, &bytes));
    rp_status status = rpi_json_parse(path, text, bytes, out_root);
    rpi_free(text);
    return status;
}

rp_status rpi_hf_config_open(const char *folder, char model[RPI_MODEL_TEXT],
                             const rpi_hf_family **out_family, bool *out_untied) {
    char path[RPI_PATH_BYTES];
    cJSON *root = NULL;
    RP_TRY(rpi_hf_adapter_check(folder));
    rp_status status = read_json(folder, "config.json", path, &root);
    if (status == RP_NOT_FOUND)
        return RP_FAIL(NOT_FOUND,
                       "%s is missing: a Hugging Face folder has config.json and "
                       "model.safetensors",
                       path);
    if (status == RP_OK) status = read_model(folder, path, root, model, out_family, out_untied);
    cJSON_Delete(root);
    return status;
}

rp_status rpi_hf_config_read(const char *folder, char model[RPI_MODEL_TEXT],
                             const rpi_hf_family **out_family) {
    bool is_untied;
    return rpi_hf_config_open(folder, model, out_family, &is_untied);
}

const char *rpi_hf_folder(const char *text) {
    return strncmp(text, "hf:", 3) == 0 ? text + 3 : NULL;
}

rp_status rpi_hf_model_of(const char *text, char model[RPI_MODEL_TEXT],
                          const char **out_folder) {
    const rpi_hf_family *family = NULL;
    const char *folder = rpi_hf_folder(text);
    if (folder && !*folder)
        return RP_FAIL(INVALID, "--model: hf:FOLDER, and the folder is missing");
    if (folder)
        RP_TRY(rpi_hf_config_read(folder, model, &family));
    else if (snprintf(model, RPI_MODEL_TEXT, "%s", text) >= RPI_MODEL_TEXT)
        return RP_FAIL(INVALID, "--model: the text is too long");
    *out_folder = folder;
    return RP_OK;
}

/* ---- where a text ends ---- */

static rp_status add_end(const char *path, const cJSON *item, rpi_hf_ends *ends) {
    if (!cJSON_IsNumber(item) || ends->count == RPI_HF_ENDS ||
        !(fabs(item->valuedouble) <= RPI_HF_LARGEST * 4.0))
        return RP_FAIL(CORRUPT, "%s: 'eos_token_id' is no token, and no list of %d at most",
                       path, (int)RPI_HF_ENDS);
    ends->at[ends->count++] = (int64_t)item->valuedouble;
    return RP_OK;
}

static rp_status read_ends(const char *path, const cJSON *root, rpi_hf_ends *ends) {
    const cJSON *item = find_key(root, "eos_token_id"), *element;
    if (!is_there(item)) return RP_OK;
    if (!cJSON_IsArray(item)) return add_end(path, item, ends);
    cJSON_ArrayForEach(element, item) RP_TRY(add_end(path, element, ends));
    return RP_OK;
}

rp_status rpi_hf_config_ends(const char *folder, rpi_hf_ends *out_ends) {
    static const char *const names[] = {"generation_config.json", "config.json"};
    rpi_hf_ends ends = {0};
    for (int i = 0; i < 2 && ends.count == 0; i++) {
        char path[RPI_PATH_BYTES];
        cJSON *root = NULL;
        rp_status status = read_json(folder, names[i], path, &root);
        if (status == RP_NOT_FOUND) continue;
        if (status == RP_OK) status = read_ends(path, root, &ends);
        cJSON_Delete(root);
        RP_TRY(status);
    }
    *out_ends = ends;
    return RP_OK;
}
