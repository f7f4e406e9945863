#include "train/huggingface/hf_rope.h"

#include "base/append.h"
#include "base/status.h"
#include "train/huggingface/hf_number.h"
#include "train/tokenizers/json_read.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- reading ---- */

/* As transformers 5 reads it: rope_scaling, if it says something, then rope_parameters. */
const cJSON *rpi_hf_rope_object(const cJSON *root) {
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
                "%s: '%s' is %.150s; model llama knows rope_type \"default\", \"dynamic\", "
                "\"linear\", \"llama3\" and \"yarn\"",
                path, object->string, shown ? shown : "?");
    cJSON_free(shown);
    return status;
}

static rp_status read_number(const char *path, const cJSON *object, const char *key,
                             double *out) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!item || cJSON_IsNull(item))
        return RP_FAIL(CORRUPT, "%s: '%s.%s' is missing", path, object->string, key);
    char name[96];
    snprintf(name, sizeof name, "%s.%s", object->string, key);
    RP_TRY(rpi_hf_real_check(path, name, item));
    *out = item->valuedouble;
    return RP_OK;
}

/* Tokens of a text in training: where nothing is said, as many as there are positions. */
static rp_status read_original(const char *path, const cJSON *root, const cJSON *object,
                               double *out) {
    static const char key[] = "original_max_position_embeddings";
    const cJSON *outside = cJSON_GetObjectItemCaseSensitive(root, key);
    const cJSON *all = cJSON_GetObjectItemCaseSensitive(root, "max_position_embeddings");
    *out = cJSON_IsNumber(all) ? all->valuedouble : 0;
    if (cJSON_IsNumber(outside))
        *out = outside->valuedouble; /* before what the object says, as there */
    else if (rpi_json_has(object, key))
        RP_TRY(read_number(path, object, key, out));
    cJSON number = {.type = cJSON_Number, .valuedouble = *out};
    char name[96];
    snprintf(name, sizeof name, "%s.%s", object->string, key);
    return rpi_hf_whole_check(path, name, &number, 1, RPI_HF_LARGEST);
}

static rp_status read_llama3(const char *path, const cJSON *root, const cJSON *object,
                             char *text, size_t bytes) {
    double factor, low, high, original;
    RP_TRY(read_number(path, object, "factor", &factor));
    RP_TRY(read_number(path, object, "low_freq_factor", &low));
    RP_TRY(read_number(path, object, "high_freq_factor", &high));
    RP_TRY(read_original(path, root, object, &original));
    rpi_append(text, bytes,
               ",rope-factor=%.15g,rope-original=%.15g,rope-low=%.15g,rope-high=%.15g", factor,
               original, low, high);
    return RP_OK;
}

static rp_status read_linear(const char *path, const cJSON *object, char *text, size_t bytes) {
    double factor;
    RP_TRY(read_number(path, object, "factor", &factor));
    rpi_append(text, bytes, ",rope-factor=%.15g", factor);
    return RP_OK;
}

/* Positions up to max_position_embeddings, which are all that our model has, stay as they are;
 * only beyond them would the base grow with the text. */
static rp_status read_dynamic(const char *path, const cJSON *object) {
    double factor;
    return read_number(path, object, "factor", &factor);
}

/* ---- YaRN ---- */

/* `usual` where a key is missing, null or 0. */
static rp_status read_optional(const char *path, const cJSON *object, const char *key,
                               double usual, double *out) {
    if (!rpi_json_has(object, key)) {
        *out = usual;
        return RP_OK;
    }
    RP_TRY(read_number(path, object, key, out));
    if (*out == 0) *out = usual;
    return RP_OK;
}

/* null: as much longer as the positions are. */
static rp_status read_factor(const char *path, const cJSON *root, const cJSON *object,
                             double original, double *out) {
    const cJSON *factor = cJSON_GetObjectItemCaseSensitive(object, "factor");
    const cJSON *all = cJSON_GetObjectItemCaseSensitive(root, "max_position_embeddings");
    if (!cJSON_IsNull(factor) || !cJSON_IsNumber(all))
        return read_number(path, object, "factor", out);
    *out = all->valuedouble / original;
    return RP_OK;
}

static double log_scale(double factor, double times) {
    return factor > 1 ? 0.1 * times * log(factor) + 1 : 1;
}

/* Of cosines and sines; 0: what follows from the factor. Two scales are its numerator's and its
 * denominator's (DeepSeek's configurations). */
static rp_status read_attention(const char *path, const cJSON *object, double factor,
                                double *out) {
    double above, below;
    *out = 0;
    if (rpi_json_has(object, "attention_factor")) {
        RP_TRY(read_number(path, object, "attention_factor", out));
        if (*out > 0) return RP_OK;
        return RP_FAIL(CORRUPT, "%s: '%s.attention_factor' is %g; above 0 is wanted", path,
                       object->string, *out);
    }
    RP_TRY(read_optional(path, object, "mscale", 0, &above));
    RP_TRY(read_optional(path, object, "mscale_all_dim", 0, &below));
    if (above == 0 || below == 0) return RP_OK;
    *out = log_scale(factor, above) / log_scale(factor, below);
    if (*out > 0 && isfinite(*out)) return RP_OK;
    return RP_FAIL(INVALID, "%s: '%s.mscale' is %g: the scale is then not above 0", path,
                   object->string, above);
}

/* null is false there. */
static rp_status read_truncate(const char *path, const cJSON *object, bool *out) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, "truncate");
    *out = !item || cJSON_IsTrue(item);
    if (!item || cJSON_IsNull(item) || cJSON_IsBool(item)) return RP_OK;
    return RP_FAIL(CORRUPT, "%s: '%s.truncate' is no true or false", path, object->string);
}

static rp_status read_yarn(const char *path, const cJSON *root, const cJSON *object, char *text,
                           size_t bytes) {
    double factor, low, high, original, attention;
    bool truncates;
    RP_TRY(read_original(path, root, object, &original));
    RP_TRY(read_factor(path, root, object, original, &factor));
    RP_TRY(read_optional(path, object, "beta_slow", 1, &low));
    RP_TRY(read_optional(path, object, "beta_fast", 32, &high));
    RP_TRY(read_attention(path, object, factor, &attention));
    RP_TRY(read_truncate(path, object, &truncates));
    rpi_append(text, bytes, ",rope-factor=%.15g,rope-original=%.15g,rope-yarn=on", factor,
               original);
    if (low != 1) rpi_append(text, bytes, ",rope-low=%.15g", low);
    if (high != 32) rpi_append(text, bytes, ",rope-high=%.15g", high);
    if (!truncates) rpi_append(text, bytes, ",rope-truncate=off");
    if (attention > 0) rpi_append(text, bytes, ",rope-attention=%.15g", attention);
    return RP_OK;
}

rp_status rpi_hf_rope_read(const char *path, const cJSON *root, char *text, size_t bytes) {
    const cJSON *object = rpi_hf_rope_object(root);
    const char *type = "default", *old_type = NULL;
    if (!object || cJSON_IsNull(object)) return RP_OK;
    if (!cJSON_IsObject(object)) return refuse(path, object);
    const cJSON *item; /* {"full_attention": {...}, ...}: one for each kind of layer */
    cJSON_ArrayForEach(item, object) if (cJSON_IsObject(item)) return refuse(path, object);
    if (rpi_json_text(object, "type", type, &old_type) != RP_OK ||
        rpi_json_text(object, "rope_type", old_type, &type) != RP_OK)
        return refuse(path, object);
    if (strcmp(type, "default") == 0) return RP_OK;
    if (strcmp(type, "dynamic") == 0) return read_dynamic(path, object);
    if (strcmp(type, "linear") == 0) return read_linear(path, object, text, bytes);
    if (strcmp(type, "llama3") == 0) return read_llama3(path, root, object, text, bytes);
    if (strcmp(type, "yarn") == 0) return read_yarn(path, root, object, text, bytes);
    return refuse(path, object);
}

/* ---- writing ---- */

static double real_of(const rpi_model_choice *choice, const char *name) {
    const rpi_option *option = rpi_model_option(choice->model, name);
    double value = 0;
    if (option) memcpy(&value, choice->options + option->offset, sizeof value);
    return value;
}

static bool flag_of(const rpi_model_choice *choice, const char *name) {
    const rpi_option *option = rpi_model_option(choice->model, name);
    return option && *(const bool *)(choice->options + option->offset);
}

static const char *type_of(const rpi_model_choice *choice) {
    if (flag_of(choice, "rope-yarn")) return "yarn";
    if (!(real_of(choice, "rope-factor") > 1)) return "default";
    return rpi_model_number(choice, "rope-original") ? "llama3" : "linear";
}

static void put_yarn(const rpi_model_choice *choice, cJSON *object) {
    double attention = real_of(choice, "rope-attention");
    cJSON_AddNumberToObject(object, "beta_slow", real_of(choice, "rope-low"));
    cJSON_AddNumberToObject(object, "beta_fast", real_of(choice, "rope-high"));
    if (!flag_of(choice, "rope-truncate")) cJSON_AddBoolToObject(object, "truncate", false);
    if (attention > 0) cJSON_AddNumberToObject(object, "attention_factor", attention);
}

static void put_stretch(const rpi_model_choice *choice, cJSON *object) {
    const char *type = type_of(choice);
    int64_t original = rpi_model_number(choice, "rope-original");
    cJSON_AddStringToObject(object, "rope_type", type);
    if (strcmp(type, "default") == 0) return;
    cJSON_AddNumberToObject(object, "factor", real_of(choice, "rope-factor"));
    if (strcmp(type, "linear") == 0) return;
    cJSON_AddNumberToObject(object, "original_max_position_embeddings", (double)original);
    if (strcmp(type, "yarn") == 0) {
        put_yarn(choice, object);
        return;
    }
    cJSON_AddNumberToObject(object, "low_freq_factor", real_of(choice, "rope-low"));
    cJSON_AddNumberToObject(object, "high_freq_factor", real_of(choice, "rope-high"));
}

/* rope_parameters has the base already. */
void rpi_hf_rope_write(const rpi_model_choice *choice, cJSON *root) {
    cJSON *parameters = cJSON_GetObjectItemCaseSensitive(root, "rope_parameters");
    if (parameters) put_stretch(choice, parameters);
    if (strcmp(type_of(choice), "default") != 0)
        put_stretch(choice, cJSON_AddObjectToObject(root, "rope_scaling"));
}
