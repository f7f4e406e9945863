/* Post-processors: the tokens that are put before and behind a text. */
#include "train/tokenizers/tokenizer_parts.h"

#include <string.h>

/* ["[SEP]", 102] */
static rp_status add_pair(const cJSON *json, const char *key, rpi_ids *ids) {
    const cJSON *pair = NULL;
    RP_TRY(rpi_json_member(json, key, &pair));
    const cJSON *id = cJSON_GetArrayItem(pair, 1);
    if (!cJSON_IsNumber(id) || id->valuedouble < 0 || id->valuedouble >= RPI_TOKENS_MOST)
        return RP_FAIL(CORRUPT, "'%s' is no token with its id", key);
    return rpi_ids_add(ids, (uint32_t)id->valuedouble);
}

/* {"SpecialToken": {"id": "[CLS]"}}, whose ids stand in special_tokens. */
static rp_status add_special(const cJSON *json, const cJSON *item, rpi_ids *ids) {
    const cJSON *special = cJSON_GetObjectItemCaseSensitive(item, "SpecialToken"), *id;
    const char *name = NULL;
    RP_TRY(rpi_json_text(special, "id", "", &name));
    const cJSON *all = cJSON_GetObjectItemCaseSensitive(json, "special_tokens");
    const cJSON *known = cJSON_GetObjectItemCaseSensitive(all, name);
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(known, "ids");
    if (!cJSON_IsArray(list))
        return RP_FAIL(CORRUPT, "special_tokens lacks the ids of '%.60s'", name);
    cJSON_ArrayForEach(id, list) {
        if (!cJSON_IsNumber(id) || id->valuedouble < 0 || id->valuedouble >= RPI_TOKENS_MOST)
            return RP_FAIL(CORRUPT, "an id of '%.60s' is no number of a token", name);
        RP_TRY(rpi_ids_add(ids, (uint32_t)id->valuedouble));
    }
    return RP_OK;
}

/* Later ones go around what earlier ones made. */
static rp_status surround(rpi_tokenizer *t, const rpi_ids *before, const rpi_ids *after) {
    rpi_ids joined = {0};
    rp_status status = rpi_ids_append(&joined, before->at, before->count);
    if (status == RP_OK) status = rpi_ids_append(&joined, t->before.at, t->before.count);
    if (status == RP_OK) status = rpi_ids_append(&t->after, after->at, after->count);
    if (status != RP_OK) {
        rpi_ids_free(&joined);
        return status;
    }
    rpi_ids_free(&t->before);
    t->before = joined;
    return RP_OK;
}

static rp_status template(const cJSON *json, rpi_ids *before, rpi_ids *after) {
    const cJSON *single = NULL, *item;
    int texts = 0;
    RP_TRY(rpi_json_member(json, "single", &single));
    if (!cJSON_IsArray(single)) return RP_FAIL(CORRUPT, "'single' is no list");
    cJSON_ArrayForEach(item, single) {
        if (rpi_json_has(item, "Sequence"))
            texts++;
        else
            RP_TRY(add_special(json, item, texts ? after : before));
    }
    return texts == 1
               ? RP_OK
               : RP_FAIL(UNSUPPORTED, "'single' holds the text %d times, not once", texts);
}

static rp_status cls_and_sep(const cJSON *json, rpi_ids *before, rpi_ids *after) {
    RP_TRY(add_pair(json, "cls", before));
    return add_pair(json, "sep", after);
}

/* Its options are about offsets, which nobody asks for here. */
static rp_status nothing(const cJSON *json, rpi_ids *before, rpi_ids *after) {
    (void)json;
    (void)before;
    (void)after;
    return RP_OK;
}

static const struct {
    const char *type;
    rp_status (*load)(const cJSON *json, rpi_ids *before, rpi_ids *after);
} kinds[] = {
    {"TemplateProcessing", template},
    {"BertProcessing", cls_and_sep},
    {"RobertaProcessing", cls_and_sep},
    {"ByteLevel", nothing},
};

static rp_status load_one(const cJSON *json, rpi_tokenizer *t) {
    const char *type = rpi_json_type(json);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(kinds[i].type, type) != 0) continue;
        rpi_ids before = {0}, after = {0};
        rp_status status = kinds[i].load(json, &before, &after);
        if (status == RP_OK) status = surround(t, &before, &after);
        rpi_ids_free(&before);
        rpi_ids_free(&after);
        return status == RP_OK ? RP_OK : rpi_fail_context(status, "post_processor %s: ", type);
    }
    return RP_FAIL(UNSUPPORTED,
                   "post_processor '%s' is not supported; there are TemplateProcessing, "
                   "BertProcessing, RobertaProcessing, ByteLevel, Sequence",
                   type);
}

rp_status rpi_post_processor_load(const cJSON *json, rpi_tokenizer *t) {
    if (!json || cJSON_IsNull(json)) return RP_OK;
    if (strcmp(rpi_json_type(json), "Sequence") != 0) return load_one(json, t);
    const cJSON *list = NULL, *item;
    RP_TRY(rpi_json_member(json, "processors", &list));
    cJSON_ArrayForEach(item, list) RP_TRY(load_one(item, t));
    return RP_OK;
}
