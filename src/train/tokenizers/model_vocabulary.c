/* What several models read of their vocabularies. */
#include "train/tokenizers/pipeline.h"

#include <stdio.h>
#include <string.h>

rp_status rpi_vocabulary_load(const cJSON *json, rpi_vocabulary *vocabulary) {
    const cJSON *vocab = NULL, *item;
    RP_TRY(rpi_json_member(json, "vocab", &vocab));
    if (!cJSON_IsObject(vocab)) return RP_FAIL(CORRUPT, "'vocab' is no object");
    cJSON_ArrayForEach(item, vocab) {
        double id = item->valuedouble;
        if (!cJSON_IsNumber(item) || id < 0 || id >= RPI_TOKENS_MOST || id != (uint32_t)id)
            return RP_FAIL(CORRUPT, "vocab: the id of '%.60s' is no number from 0 to %d",
                           item->string, RPI_TOKENS_MOST - 1);
        RP_TRY(
            rpi_vocabulary_add(vocabulary, item->string, strlen(item->string), (uint32_t)id));
    }
    return RP_OK;
}

rp_status rpi_vocabulary_named(const cJSON *json, const char *key,
                               const rpi_vocabulary *vocabulary, bool *out_has,
                               uint32_t *out_id) {
    const char *text = NULL;
    RP_TRY(rpi_json_text(json, key, NULL, &text));
    *out_has = text != NULL;
    if (!text || rpi_vocabulary_find(vocabulary, text, strlen(text), out_id)) return RP_OK;
    return RP_FAIL(CORRUPT, "the vocabulary lacks the %s '%.60s'", key, text);
}

void rpi_vocabulary_bytes(const rpi_vocabulary *vocabulary, uint32_t ids[256]) {
    for (unsigned byte = 0; byte < 256; byte++) {
        char name[8];
        int length = snprintf(name, sizeof name, "<0x%02X>", byte);
        if (!rpi_vocabulary_find(vocabulary, name, (size_t)length, &ids[byte]))
            ids[byte] = UINT32_MAX;
    }
}

rp_status rpi_byte_ids_add(const uint32_t ids[256], const char *text, size_t bytes,
                           bool *out_all, rpi_ids *out) {
    *out_all = false;
    for (size_t i = 0; i < bytes; i++)
        if (ids[(uint8_t)text[i]] == UINT32_MAX) return RP_OK;
    for (size_t i = 0; i < bytes; i++) RP_TRY(rpi_ids_add(out, ids[(uint8_t)text[i]]));
    *out_all = true;
    return RP_OK;
}
