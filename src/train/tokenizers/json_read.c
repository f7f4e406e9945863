#include "train/tokenizers/json_read.h"

#include "train/texts/json_scan.h"
#include "train/tokenizers/utf8_text.h"

#include <stdlib.h>
#include <string.h>

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

/* ---- what Python writes, and parsers or C strings cannot hold ---- */

/* A NUL is kept as in modified UTF-8, by two bytes that are none of UTF-8. */
enum { NUL_LEAD = 0xc0, NUL_TAIL = 0x80, NO_UTF8 = 0xff, ESCAPE = 6 };

/* What stands for characters that are none. */
typedef struct shield {
    const char *nul, *half;
    size_t replaced;
} shield;
static const char no_character[] = "\xef\xbf\xbd"; /* U+FFFD */

/* The code of an escape \uXXXX at `at`; -1: there is none. */
static int escaped(const char *at, const char *end) {
    int code = 0;
    if (end - at < ESCAPE || at[0] != '\\' || at[1] != 'u') return -1;
    for (int i = 2; i < ESCAPE; i++) {
        int digit = at[i] >= '0' && at[i] <= '9'   ? at[i] - '0'
                    : at[i] >= 'a' && at[i] <= 'f' ? at[i] - 'a' + 10
                    : at[i] >= 'A' && at[i] <= 'F' ? at[i] - 'A' + 10
                                                   : -1;
        if (digit < 0) return -1;
        code = 16 * code + digit;
    }
    return code;
}

static bool is_high(int code) {
    return code >= 0xd800 && code <= 0xdbff;
}

static bool is_low(int code) {
    return code >= 0xdc00 && code <= 0xdfff;
}

static bool is_nul(const char *at, const char *end) {
    return end - at > 1 && (unsigned char)at[0] == NUL_LEAD && (unsigned char)at[1] == NUL_TAIL;
}

/* Copies what begins at `at`, a backslash; returns what stands behind it. */
static const char *take_escape(shield *s, const char *at, const char *end, char **to) {
    int code = escaped(at, end);
    size_t bytes = code >= 0 ? ESCAPE : end - at < 2 ? 1 : 2;
    if (is_high(code) && is_low(escaped(at + ESCAPE, end)))
        bytes = 2 * (size_t)ESCAPE;
    else if (is_high(code) || is_low(code) || code == 0) {
        const char *instead = code == 0 ? s->nul : s->half;
        s->replaced++;
        memcpy(*to, instead, strlen(instead));
        *to += strlen(instead);
        return at + bytes;
    }
    memmove(*to, at, bytes);
    *to += bytes;
    return at + bytes;
}

/* The length of a number that only Python writes; 0: there is none. */
static size_t odd_number(const char *at, const char *end) {
    static const char *const words[] = {"NaN", "Infinity"};
    for (int i = 0; i < 2; i++) {
        size_t bytes = strlen(words[i]);
        if ((size_t)(end - at) >= bytes && memcmp(at, words[i], bytes) == 0) return bytes;
    }
    return 0;
}

static size_t apply(shield *s, char *text, size_t bytes) {
    const char *at = text, *end = text + bytes;
    char *to = text;
    bool in_text = false;
    while (at < end) {
        if (*at == '\\') {
            at = take_escape(s, at, end, &to);
            continue;
        }
        in_text ^= *at == '"';
        size_t odd = in_text ? 0 : odd_number(at, end);
        *to++ = odd ? '0' : is_nul(at, end) ? (char)NO_UTF8 : *at; /* of the text itself */
        at += odd ? odd : 1;
    }
    return (size_t)(to - text);
}

size_t rpi_json_shield(char *text, size_t bytes) {
    shield s = {.nul = "\xc0\x80", .half = "\xff"};
    return apply(&s, text, bytes);
}

size_t rpi_json_shield_plain(char *text, size_t bytes, size_t *out_replaced) {
    shield s = {.nul = no_character, .half = no_character};
    size_t left = apply(&s, text, bytes);
    *out_replaced = s.replaced;
    return left;
}

size_t rpi_json_unshield(char *text) {
    char *to = text;
    for (const char *at = text; *at; at++) {
        bool nul = is_nul(at, at + 2);
        *to++ = nul ? '\0' : *at;
        at += nul;
    }
    return (size_t)(to - text);
}

/* The first escape of U+0000; NULL: there is none. */
static const char *find_nul(const char *text, size_t bytes) {
    const char *end = text + bytes;
    for (const char *at = text; (at = memchr(at, '\\', (size_t)(end - at))) != NULL;) {
        if (escaped(at, end) == 0) return at;
        at += end - at < 2 ? 1 : 2;
    }
    return NULL;
}

/* ---- whole texts ---- */

static int line_of(const char *text, const char *at) {
    int line = 1;
    for (; text < at; text++) line += *text == '\n';
    return line;
}

cJSON *rpi_json_whole(const char *text, size_t bytes, const char **out_end, bool *out_longer) {
    const char *end = NULL, *behind = text + bytes;
    cJSON *root = cJSON_ParseWithLengthOpts(text, bytes, &end, false);
    if (!end || end > behind) end = behind;
    while (root && end < behind && rpi_json_is_blank(*end)) end++;
    *out_longer = root && end < behind;
    *out_end = end;
    if (!*out_longer) return root;
    cJSON_Delete(root);
    return NULL;
}

/* ---- members of one name ---- */

typedef struct member {
    cJSON *item;
    int order;
} member;

static int by_name(const void *a, const void *b) {
    const member *x = a, *y = b;
    int order = strcmp(x->item->string, y->item->string);
    return order ? order : x->order - y->order;
}

static rp_status keep_last(cJSON *object) {
    member *members = NULL;
    cJSON *item;
    int count = 0, all = cJSON_GetArraySize(object);
    RP_TRY(rpi_alloc_array((size_t)all + 1, sizeof *members, "members", &members));
    cJSON_ArrayForEach(item, object) {
        members[count] = (member){item, count};
        count++;
    }
    qsort(members, (size_t)count, sizeof *members, by_name);
    for (int i = 0; i + 1 < count; i++)
        if (strcmp(members[i].item->string, members[i + 1].item->string) == 0)
            cJSON_Delete(cJSON_DetachItemViaPointer(object, members[i].item));
    rpi_free(members);
    return RP_OK;
}

/* NOLINTNEXTLINE(misc-no-recursion): cJSON has limited the depth. */
rp_status rpi_json_keep_last(cJSON *root) {
    cJSON *item;
    if (cJSON_IsObject(root)) RP_TRY(keep_last(root));
    cJSON_ArrayForEach(item, root) if (item->child) RP_TRY(rpi_json_keep_last(item));
    return RP_OK;
}

/* ---- files ---- */

rp_status rpi_json_parse(const char *name, const char *text, size_t bytes, cJSON **out_root) {
    const char *end = NULL;
    bool longer = false;
    RP_TRY(rpi_utf8_check(name, text, bytes)); /* patterns trust texts to be */
    const char *nul = find_nul(text, bytes);
    if (nul)
        return RP_FAIL(CORRUPT, "%s: line %d has the character \\u0000, which no text here can",
                       name, line_of(text, nul));
    cJSON *root = rpi_json_whole(text, bytes, &end, &longer);
    if (longer)
        return RP_FAIL(CORRUPT, "%s goes on behind its JSON: line %d", name,
                       line_of(text, end));
    if (!root)
        return RP_FAIL(CORRUPT, "%s is no JSON: line %d cannot be read", name,
                       line_of(text, end));
    rp_status status = rpi_json_keep_last(root);
    if (status == RP_OK)
        *out_root = root;
    else
        cJSON_Delete(root);
    return status;
}

rp_status rpi_json_refuse(const char *path, const cJSON *item, const char *known) {
    char *shown = cJSON_PrintUnformatted(item);
    rp_status status = RP_FAIL(INVALID, "%s: '%s' is %.100s; %s", path, item->string,
                               shown ? shown : "?", known);
    cJSON_free(shown);
    return status;
}
