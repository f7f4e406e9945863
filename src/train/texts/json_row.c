#include "train/texts/json_row.h"

#include "train/tokenizers/json_read.h"
#include "train/tokenizers/utf8_text.h"

#include <stdio.h>
#include <string.h>

const char *rpi_json_kind_name(const cJSON *item) {
    if (cJSON_IsNull(item)) return "null";
    if (cJSON_IsBool(item)) return cJSON_IsTrue(item) ? "true" : "false";
    if (cJSON_IsNumber(item)) return "a number";
    if (cJSON_IsString(item)) return "a text";
    return cJSON_IsArray(item) ? "a list" : "an object";
}

/* `text` is shielded. */
static rp_status parse(const char *text, size_t bytes, cJSON **out_object) {
    const char *end = NULL;
    bool longer = false;
    cJSON *object = rpi_json_whole(text, bytes, &end, &longer);
    if (longer) return RP_FAIL(CORRUPT, "goes on behind its JSON; a line holds one object");
    if (!object) return RP_FAIL(CORRUPT, "no JSON");
    rp_status status = rpi_json_keep_last(object);
    if (status == RP_OK && !cJSON_IsObject(object))
        status = RP_FAIL(CORRUPT, "this is no JSON object, but %s", rpi_json_kind_name(object));
    if (status == RP_OK)
        *out_object = object;
    else
        cJSON_Delete(object);
    return status;
}

rp_status rpi_json_row_read(rpi_text_part *part, cJSON **out_object) {
    return parse(part->text, rpi_json_shield(part->text, part->bytes), out_object);
}

rp_status rpi_json_row_read_plain(char *text, size_t bytes, cJSON **out_root,
                                  size_t *out_replaced) {
    rpi_text mended = {0};
    size_t bad = 0, escapes = 0;
    if (rpi_utf8_valid(text, bytes) < bytes) {
        RP_TRY(rpi_utf8_repair(text, bytes, &mended, &bad));
        text = mended.at;
        bytes = mended.count;
    }
    rp_status status = parse(text, rpi_json_shield_plain(text, bytes, &escapes), out_root);
    rpi_text_free(&mended);
    *out_replaced = bad + escapes;
    return status;
}

/* ---- texts ---- */

static rp_status name_others(const cJSON *object, const char *key, const char *usage) {
    char names[200] = "";
    size_t used = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, object) {
        if (!item->string || used + strlen(item->string) + 3 > sizeof names) break;
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "",
                                 item->string);
    }
    return RP_FAIL(CORRUPT, "no text under the key '%s'%s%s; %s", key,
                   *names ? "; there are " : "", names, usage);
}

rp_status rpi_json_row_text(const cJSON *object, const char *key, const char *usage,
                            rpi_text *room, const char **out_text, size_t *out_bytes,
                            size_t *out_replaced) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!item) return name_others(object, key, usage);
    if (!cJSON_IsString(item))
        return RP_FAIL(CORRUPT, "its '%s' is %s, and no text", key, rpi_json_kind_name(item));
    size_t bytes = rpi_json_unshield(item->valuestring);
    *out_text = item->valuestring;
    *out_bytes = bytes;
    *out_replaced = 0;
    if (rpi_utf8_valid(item->valuestring, bytes) == bytes) return RP_OK;
    room->count = 0;
    RP_TRY(rpi_utf8_repair(item->valuestring, bytes, room, out_replaced));
    *out_text = room->at;
    *out_bytes = room->count;
    return RP_OK;
}
