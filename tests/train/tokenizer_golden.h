/* Files of make_tokenizer_golden.py: tokenizers, and what Hugging Face's make of nasty texts.
 * REDPOLL_TOKENIZER_GOLDEN=FOLDER reads the files of another folder. */
#ifndef RPI_TEST_TOKENIZER_GOLDEN_H
#define RPI_TEST_TOKENIZER_GOLDEN_H

#include "harness/check.h"

#include "base/memory.h"
#include "base/regular_file.h"
#include "train/tokenizers/json_read.h"
#include "train/tokenizers/tokenizer.h"
#include "train/tokenizers/utf8_text.h"

#include <stdlib.h>

static inline size_t from_hex(const char *hex, char **out_bytes) {
    size_t count = strlen(hex) / 2;
    char *bytes = malloc(count + 1);
    for (size_t i = 0; i < count; i++) {
        unsigned byte = 0;
        sscanf(hex + 2 * i, "%2x", &byte);
        bytes[i] = (char)byte;
    }
    bytes[count] = '\0';
    *out_bytes = bytes;
    return count;
}

static inline bool same_ids(const cJSON *wanted, const rpi_ids *ids) {
    if ((size_t)cJSON_GetArraySize(wanted) != ids->count) return false;
    const cJSON *id;
    size_t i = 0;
    cJSON_ArrayForEach(id, wanted) if ((uint32_t)id->valuedouble != ids->at[i++]) return false;
    return true;
}

static inline void ids_text(const rpi_ids *ids, char *text, size_t bytes) {
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < ids->count && used + 12 < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%u,", ids->at[i]);
}

static inline void check_ids(const char *file, const cJSON *one, const char *key,
                             unsigned flags, rpi_encoder *encoder, const char *text,
                             size_t bytes, rpi_ids *ids) {
    const cJSON *wanted = cJSON_GetObjectItemCaseSensitive(one, key);
    if (cJSON_IsNull(wanted)) wanted = cJSON_GetObjectItemCaseSensitive(one, "ids");
    char got[600], *shown = cJSON_PrintUnformatted(wanted);
    ids->count = 0;
    CHECK_OK(rpi_encode(encoder, text, bytes, flags, ids, NULL));
    ids_text(ids, got, sizeof got);
    CHECK_MSG(same_ids(wanted, ids), "%s %s of %.300s (%.100s): %.400s, not %.400s", file, key,
              cJSON_GetObjectItemCaseSensitive(one, "text")->valuestring, text, got, shown);
    cJSON_free(shown);
}

/* Bytes that are no text are kept here, and U+FFFD there. */
static inline void check_decoded(const char *file, const cJSON *one, const char *key,
                                 unsigned flags, rpi_encoder *encoder, const rpi_ids *ids) {
    char *wanted;
    size_t count = from_hex(cJSON_GetObjectItemCaseSensitive(one, key)->valuestring, &wanted);
    size_t replaced;
    rpi_text raw = {0}, text = {0};
    CHECK_OK(rpi_decode(encoder, ids->at, ids->count, flags, &raw));
    CHECK_OK(rpi_utf8_repair(raw.at, raw.count, &text, &replaced));
    CHECK_MSG(text.count == count && (count == 0 || memcmp(text.at, wanted, count) == 0),
              "%s %s of %.300s: '%.*s', not '%s'", file, key,
              cJSON_GetObjectItemCaseSensitive(one, "text")->valuestring, (int)text.count,
              text.at ? text.at : "", wanted);
    rpi_text_free(&raw);
    rpi_text_free(&text);
    free(wanted);
}

static inline void check_text(const char *file, const cJSON *one, rpi_encoder *encoder) {
    char *text;
    size_t bytes = from_hex(cJSON_GetObjectItemCaseSensitive(one, "text")->valuestring, &text);
    rpi_ids ids = {0};
    check_ids(file, one, "ids", 0, encoder, text, bytes, &ids);
    check_ids(file, one, "plain_special", RPI_ENCODE_PLAIN_SPECIAL, encoder, text, bytes, &ids);
    check_ids(file, one, "special", RPI_ENCODE_ADD_SPECIAL, encoder, text, bytes, &ids);
    check_decoded(file, one, "decoded", 0, encoder, &ids);
    check_decoded(file, one, "skipped", RPI_DECODE_SKIP_SPECIAL, encoder, &ids);
    rpi_ids_free(&ids);
    free(text);
}

static inline const char *golden_folder(void) {
    const char *folder = getenv("REDPOLL_TOKENIZER_GOLDEN");
    return folder ? folder : TOKENIZER_GOLDEN;
}

static inline cJSON *read_golden(const char *name) {
    char path[RPI_PATH_BYTES], *text = NULL;
    size_t bytes;
    cJSON *root = NULL;
    snprintf(path, sizeof path, "%s/%s", golden_folder(), name);
    CHECK_OK(rpi_regular_file_read(path, 1 << 30, &text, &bytes));
    if (text) CHECK_OK(rpi_json_parse(path, text, bytes, &root));
    rpi_free(text);
    return root;
}

static inline rp_status open_golden(const char *name, const cJSON *root, rpi_tokenizer **out) {
    char *json = cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(root, "tokenizer"));
    rp_status status = rpi_tokenizer_parse(name, json, strlen(json), out);
    cJSON_free(json);
    return status;
}

#endif
