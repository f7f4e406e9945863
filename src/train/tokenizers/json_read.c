#include "train/tokenizers/json_read.h"

#include "train/tokenizers/utf8_text.h"

static const cJSON *find(const cJSON *object, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNull(item) ? NULL : item;
}

bool rpi_json_has(const cJSON *object, const char *key) {
    return find(object, key) != NULL;
}

rp_status rpi_json_flag(const cJSON *object, const char *key, bool fallback, bool *out) {
    const cJSON *item = find(object, key);
    if (item && !cJSON_IsBool(item))
        return RP_FAIL(CORRUPT, "'%s' is neither true nor false", key);
    *out = item ? cJSON_IsTrue(item) : fallback;
    return RP_OK;
}

rp_status rpi_json_number(const cJSON *object, const char *key, double fallback, double *out) {
    const cJSON *item = find(object, key);
    if (item && !cJSON_IsNumber(item)) return RP_FAIL(CORRUPT, "'%s' is no number", key);
    *out = item ? item->valuedouble : fallback;
    return RP_OK;
}

rp_status rpi_json_text(const cJSON *object, const char *key, const char *fallback,
                        const char **out) {
    const cJSON *item = find(object, key);
    if (item && !cJSON_IsString(item)) return RP_FAIL(CORRUPT, "'%s' is no text", key);
    *out = item ? item->valuestring : fallback;
    return RP_OK;
}

rp_status rpi_json_member(const cJSON *object, const char *key, const cJSON **out) {
    *out = find(object, key);
    return *out ? RP_OK : RP_FAIL(CORRUPT, "'%s' is missing", key);
}

const char *rpi_json_type(const cJSON *object) {
    const cJSON *item = find(object, "type");
    return cJSON_IsString(item) ? item->valuestring : "";
}

static int line_of(const char *text, const char *at) {
    int line = 1;
    for (; text < at; text++) line += *text == '\n';
    return line;
}

/* As JSON has it: no vertical tab, no form feed. */
static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

cJSON *rpi_json_whole(const char *text, size_t bytes, const char **out_end, bool *out_longer) {
    const char *end = NULL, *behind = text + bytes;
    cJSON *root = cJSON_ParseWithLengthOpts(text, bytes, &end, false);
    if (!end || end > behind) end = behind;
    while (root && end < behind && is_blank(*end)) end++;
    *out_longer = root && end < behind;
    *out_end = end;
    if (!*out_longer) return root;
    cJSON_Delete(root);
    return NULL;
}

rp_status rpi_json_parse(const char *name, const char *text, size_t bytes, cJSON **out_root) {
    const char *end = NULL;
    bool longer = false;
    RP_TRY(rpi_utf8_check(name, text, bytes)); /* patterns trust texts to be */
    cJSON *root = rpi_json_whole(text, bytes, &end, &longer);
    if (longer)
        return RP_FAIL(CORRUPT, "%s goes on behind its JSON: line %d", name,
                       line_of(text, end));
    if (!root)
        return RP_FAIL(CORRUPT, "%s is no JSON: line %d cannot be read", name,
                       line_of(text, end));
    *out_root = root;
    return RP_OK;
}
