#include "train/tokenizers/tokenizer_config.h"

#include "base/c_locale.h"
#include "base/regular_file.h"

#include <stdlib.h>
#include <string.h>

enum { FILE_MOST = 1 << 26 };

static const char config_name[] = "tokenizer_config.json";

/* An empty object where there is no such file. */
static rp_status read_path(const char *path, cJSON **out_root) {
    char *text = NULL;
    size_t bytes = 0;
    cJSON *root = NULL;
    rp_status status = rpi_regular_file_read(path, FILE_MOST, &text, &bytes);
    if (status == RP_NOT_FOUND) {
        *out_root = cJSON_CreateObject();
        return *out_root ? RP_OK : RP_FAIL(NOMEM, "no memory for %s", path);
    }
    RP_TRY(status);
    status = rpi_json_parse(path, text, bytes, &root);
    rpi_free(text);
    if (root && !cJSON_IsObject(root)) {
        cJSON_Delete(root);
        return RP_FAIL(CORRUPT, "%s is no JSON object", path);
    }
    *out_root = root;
    return root ? RP_OK : status;
}

static rp_status read_object(const char *folder, const char *name, cJSON **out_root) {
    char path[RPI_PATH_BYTES];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return RP_FAIL(INVALID, "the path %s is too long", folder);
    return read_path(path, out_root);
}

rp_status rpi_tokenizer_config_read(const char *folder, cJSON **out_config) {
    return read_object(folder, config_name, out_config);
}

/* ---- tokens that are named there ---- */

typedef struct known {
    const char *folder, *file; /* that names the token */
    const char *const *specials;
    const cJSON *vocab;
} known;

/* id below 0: none is given. */
static bool is_known(const known *k, const char *content, double id) {
    const cJSON *own = cJSON_GetObjectItemCaseSensitive(k->vocab, content);
    for (const char *const *special = k->specials; *special; special++)
        if (strcmp(*special, content) == 0) return id < 0 || (own && own->valuedouble == id);
    return false;
}

static rp_status check_token(const known *k, const char *content, double id) {
    if (is_known(k, content, id)) return RP_OK;
    return RP_FAIL(UNSUPPORTED,
                   "%s/%s: the token '%.60s' is one of its own, which is read of a "
                   "tokenizer.json alone; transformers writes that: "
                   "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)",
                   k->folder, k->file, content);
}

static bool is_on(const cJSON *token, const char *key) {
    return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(token, key));
}

/* "[MASK]", or {"content": "[MASK]", "lstrip": false, ...} */
static rp_status check_item(const known *k, const cJSON *item, double id) {
    bool text = cJSON_IsString(item);
    const cJSON *content = text ? item : cJSON_GetObjectItemCaseSensitive(item, "content");
    if (!cJSON_IsString(content)) return RP_OK;
    bool plain =
        text || !(is_on(item, "lstrip") || is_on(item, "rstrip") || is_on(item, "single_word"));
    if (plain) return check_token(k, content->valuestring, id);
    return RP_FAIL(UNSUPPORTED,
                   "%s/%s: '%.60s' takes what is beside it, which is read of a tokenizer.json "
                   "alone; transformers writes that",
                   k->folder, k->file, content->valuestring);
}

static rp_status check_named(const known *k, const cJSON *root) {
    static const char *const keys[] = {"unk_token",  "pad_token", "cls_token", "sep_token",
                                       "mask_token", "bos_token", "eos_token"};
    const cJSON *more = cJSON_GetObjectItemCaseSensitive(root, "additional_special_tokens");
    const cJSON *item;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        RP_TRY(check_item(k, cJSON_GetObjectItemCaseSensitive(root, keys[i]), -1));
    cJSON_ArrayForEach(item, more) RP_TRY(check_item(k, item, -1));
    return RP_OK;
}

/* {"50256": {"content": ...}} */
static rp_status check_decoder(const known *k, const cJSON *root) {
    const cJSON *item, *all = cJSON_GetObjectItemCaseSensitive(root, "added_tokens_decoder");
    cJSON_ArrayForEach(item, all) RP_TRY(check_item(k, item, rpi_strtod(item->string, NULL)));
    return RP_OK;
}

/* {"<extra>": 50257} */
static rp_status check_added(const known *k, const cJSON *root) {
    const cJSON *item;
    cJSON_ArrayForEach(item, root)
        RP_TRY(check_token(k, item->string, cJSON_IsNumber(item) ? item->valuedouble : -1));
    return RP_OK;
}

static rp_status check_file(const known *k,
                            rp_status (*check)(const known *k, const cJSON *root)) {
    cJSON *root = NULL;
    RP_TRY(read_object(k->folder, k->file, &root));
    rp_status status = check(k, root);
    cJSON_Delete(root);
    return status;
}

rp_status rpi_tokenizer_config_check(const char *folder, const cJSON *config,
                                     const char *const *specials, const cJSON *vocab) {
    known k = {folder, config_name, specials, vocab};
    RP_TRY(check_named(&k, config));
    RP_TRY(check_decoder(&k, config));
    k.file = "special_tokens_map.json";
    RP_TRY(check_file(&k, check_named));
    k.file = "added_tokens.json";
    return check_file(&k, check_added);
}

/* ---- the end of a text ---- */

/* "</s>", or {"content": "</s>", ...} */
static rp_status end_of(const char *path, char **out_token) {
    cJSON *root = NULL;
    RP_TRY(read_path(path, &root));
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, "eos_token");
    if (cJSON_IsObject(item)) item = cJSON_GetObjectItemCaseSensitive(item, "content");
    rp_status status = RP_OK;
    if (cJSON_IsString(item) && *item->valuestring)
        status = rpi_strdup(item->valuestring, out_token);
    cJSON_Delete(root);
    return status;
}

rp_status rpi_tokenizer_config_end(const char *tokenizer_path, char **out_token) {
    static const char own[] = "tokenizer.json";
    static const char *const names[] = {config_name, "special_tokens_map.json"};
    char path[RPI_PATH_BYTES];
    size_t length = strlen(tokenizer_path), suffix = sizeof own - 1;
    *out_token = NULL;
    if (length < suffix || strcmp(tokenizer_path + length - suffix, own) != 0) return RP_OK;
    for (int i = 0; i < 2 && !*out_token; i++) {
        if (snprintf(path, sizeof path, "%.*s%s", (int)(length - suffix), tokenizer_path,
                     names[i]) >= (int)sizeof path)
            return RP_FAIL(INVALID, "the path %s is too long", tokenizer_path);
        RP_TRY(end_of(path, out_token));
    }
    return RP_OK;
}
