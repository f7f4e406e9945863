#include "train/huggingface/hf_rope.h"

#include "base/append.h"
#include "base/status.h"
#include "train/tokenizers/json_read.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- reading ---- */

/* As transformers 5 reads it: rope_scaling, if it says something, then rope_parameters. */
static const cJSON *find_object(const cJSON *root) {
    const cJSON *scaling = cJSON_GetObjectItemCaseSensitive(root, "rope_scaling");
    if (cJSON_IsObject(scaling) ? scaling->child != NULL
                                : scaling != NULL && !cJSON_IsNull(scaling))
        return scaling;
    return cJSON_GetObjectItemCaseSensitive(root, "rope_parameters");
}

static rp_status refuse(const char *path, const cJSON *object) {
    char *shown = cJSON_PrintUnformatted(object);
    rp_status status =
        RP_FAIL(INVALID,
                "%s: '%s' is %.150s; model llama knows rope_type \"default\", \"linear\" and "
                "\"llama3\"",
                path, object->string, shown ? shown : "?");
    cJSON_free(shown);
    return status;
}

static rp_status read_number(const char *path, const cJSON *object, const char *key,
                             double *out) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!item || cJSON_IsNull(item))
        return RP_FAIL(CORRUPT, "%s: '%s.%s' is missing", path, object->string, key);
    if (!cJSON_IsNumber(item) || !isfinite(item->valuedouble))
        return RP_FAIL(CORRUPT, "%s: '%s.%s' is no number", path, object->string, key);
    *out = item->valuedouble;
    return RP_OK;
}

/* Tokens of a text in training: where nothing is said, as many as there are positions. */
static rp_status read_original(const char *path, const cJSON *root, const cJSON *object,
                               double *out) {
    static const char key[] = "original_max_position_embeddings";
    if (rpi_json_has(object, key)) return read_number(path, object, key, out);
    const cJSON *all = cJSON_GetObjectItemCaseSensitive(root, "max_position_embeddings");
    *out = cJSON_IsNumber(all) ? all->valuedouble : 0;
    return RP_OK;
}

static rp_status read_llama3(const char *path, const cJSON *root, const cJSON *object,
                             char *text, size_t bytes) {
    double low, high, original;
    RP_TRY(read_number(path, object, "low_freq_factor", &low));
    RP_TRY(read_number(path, object, "high_freq_factor", &high));
    RP_TRY(read_original(path, root, object, &original));
    if (!(original >= 1 && original <= 1e9 && original == floor(original)))
        return RP_FAIL(CORRUPT,
                       "%s: '%s.original_max_position_embeddings' is no whole number above 0",
                       path, object->string);
    rpi_append(text, bytes, ",rope-original=%.15g,rope-low=%.15g,rope-high=%.15g", original,
               low, high);
    return RP_OK;
}

rp_status rpi_hf_rope_read(const char *path, const cJSON *root, char *text, size_t bytes) {
    const cJSON *object = find_object(root);
    const char *type = "default", *old_type = NULL;
    double factor;
    if (!object || cJSON_IsNull(object)) return RP_OK;
    if (!cJSON_IsObject(object)) return refuse(path, object);
    if (rpi_json_text(object, "type", type, &old_type) != RP_OK ||
        rpi_json_text(object, "rope_type", old_type, &type) != RP_OK)
        return refuse(path, object);
    if (strcmp(type, "default") == 0) return RP_OK;
    bool by_frequency = strcmp(type, "llama3") == 0;
    if (!by_frequency && strcmp(type, "linear") != 0) return refuse(path, object);
    RP_TRY(read_number(path, object, "factor", &factor));
    rpi_append(text, bytes, ",rope-factor=%.15g", factor);
    return by_frequency ? read_llama3(path, root, object, text, bytes) : RP_OK;
}

/* ---- writing ---- */

static double real_of(const rpi_model_choice *choice, const char *name) {
    const rpi_option *option = rpi_model_option(choice->model, name);
    double value = 0;
    if (option) memcpy(&value, choice->options + option->offset, sizeof value);
    return value;
}

static void put_stretch(const rpi_model_choice *choice, cJSON *object) {
    int64_t original = rpi_model_number(choice, "rope-original");
    bool is_stretched = real_of(choice, "rope-factor") > 1;
    cJSON_AddStringToObject(object, "rope_type",
                            !is_stretched ? "default"
                            : original    ? "llama3"
                                          : "linear");
    if (!is_stretched) return;
    cJSON_AddNumberToObject(object, "factor", real_of(choice, "rope-factor"));
    if (!original) return;
    cJSON_AddNumberToObject(object, "low_freq_factor", real_of(choice, "rope-low"));
    cJSON_AddNumberToObject(object, "high_freq_factor", real_of(choice, "rope-high"));
    cJSON_AddNumberToObject(object, "original_max_position_embeddings", (double)original);
}

/* rope_parameters has the base already. */
void rpi_hf_rope_write(const rpi_model_choice *choice, cJSON *root) {
    cJSON *parameters = cJSON_GetObjectItemCaseSensitive(root, "rope_parameters");
    if (parameters) put_stretch(choice, parameters);
    if (real_of(choice, "rope-factor") > 1)
        put_stretch(choice, cJSON_AddObjectToObject(root, "rope_scaling"));
}
