#include "train/tokenizers/added_tokens.h"

#include "train/tokenizers/utf8_text.h"

#include <string.h>

static rp_status load_token(const cJSON *json, const rpi_vocabulary *vocabulary,
                            rpi_added_token *token) {
    const char *content = NULL;
    double id = -1;
    uint32_t known;
    RP_TRY(rpi_json_text(json, "content", "", &content));
    RP_TRY(rpi_json_number(json, "id", -1, &id));
    if (id < 0 || id >= RPI_TOKENS_MOST || id != (uint32_t)id)
        return RP_FAIL(CORRUPT, "the id of '%.60s' is no number from 0 to %d", content,
                       RPI_TOKENS_MOST - 1);
    token->id = (uint32_t)id;
    if (rpi_vocabulary_find(vocabulary, content, strlen(content), &known) && known != token->id)
        return RP_FAIL(CORRUPT, "'%.60s' has id %u, and %u in the vocabulary", content,
                       token->id, known);
    RP_TRY(rpi_text_append(&token->content, content, strlen(content)));
    RP_TRY(rpi_json_flag(json, "single_word", false, &token->single_word));
    RP_TRY(rpi_json_flag(json, "lstrip", false, &token->lstrip));
    RP_TRY(rpi_json_flag(json, "rstrip", false, &token->rstrip));
    RP_TRY(rpi_json_flag(json, "special", false, &token->special));
    return rpi_json_flag(json, "normalized", !token->special, &token->normalized);
}

rp_status rpi_added_tokens_load(const cJSON *json, const rpi_vocabulary *vocabulary,
                                rpi_added_tokens *added) {
    const cJSON *item;
    int count = cJSON_IsArray(json) ? cJSON_GetArraySize(json) : 0;
    RP_TRY(rpi_alloc_array((size_t)count + 1, sizeof *added->at, "added tokens", &added->at));
    cJSON_ArrayForEach(item, json) {
        rp_status status = load_token(item, vocabulary, &added->at[added->count++]);
        if (status != RP_OK)
            return rpi_fail_context(status, "added token %zu: ", added->count - 1);
    }
    return RP_OK;
}

void rpi_added_tokens_free(rpi_added_tokens *added) {
    for (size_t i = 0; i < added->count; i++) {
        rpi_text_free(&added->at[i].content);
        rpi_text_free(&added->at[i].matched);
    }
    rpi_free(added->at);
    rpi_free(added->raw.order);
    rpi_free(added->normalized.order);
    *added = (rpi_added_tokens){0};
}

/* ---- finding ---- */

static int first_byte(const rpi_added_tokens *added, uint32_t index) {
    return (uint8_t)added->at[index].matched.at[0];
}

static bool comes_before(const rpi_added_tokens *added, uint32_t a, uint32_t b) {
    int x = first_byte(added, a), y = first_byte(added, b);
    if (x != y) return x < y;
    return added->at[a].matched.count > added->at[b].matched.count;
}

static rp_status prepare(const rpi_added_tokens *added, bool normalized,
                         rpi_added_finder *finder) {
    RP_TRY(rpi_alloc_array(added->count + 1, sizeof *finder->order, "added tokens",
                           &finder->order));
    for (uint32_t i = 0; i < added->count; i++) {
        if (added->at[i].normalized != normalized || !added->at[i].matched.count) continue;
        size_t at = finder->count++;
        for (; at > 0 && comes_before(added, i, finder->order[at - 1]); at--)
            finder->order[at] = finder->order[at - 1];
        finder->order[at] = i;
    }
    size_t at = 0;
    for (int byte = 0; byte <= 256; byte++) {
        while (at < finder->count && first_byte(added, finder->order[at]) < byte) at++;
        finder->first[byte] = (uint32_t)at;
    }
    return RP_OK;
}

rp_status rpi_added_tokens_prepare(rpi_added_tokens *added) {
    RP_TRY(prepare(added, false, &added->raw));
    return prepare(added, true, &added->normalized);
}

static const char *before(const char *text, const char *at) {
    do at--;
    while (at > text && (*at & 0xc0) == 0x80);
    return at;
}

static bool is_class(const char *at, unsigned class, size_t *out_bytes) {
    return rpi_utf8_class(rpi_utf8_read(at, out_bytes)) & class;
}

static bool stands_alone(const char *text, size_t bytes, size_t start, size_t end) {
    size_t length;
    if (start > 0 && is_class(before(text, text + start), RPI_WORD, &length)) return false;
    return end == bytes || !is_class(text + end, RPI_WORD, &length);
}

static void take_spaces(const rpi_added_token *token, const char *text, size_t bytes,
                        size_t from, size_t *start, size_t *end) {
    size_t length;
    while (token->lstrip && *start > from) {
        const char *previous = before(text, text + *start);
        if (!is_class(previous, RPI_SPACE, &length)) break;
        *start = (size_t)(previous - text);
    }
    while (token->rstrip && *end < bytes && is_class(text + *end, RPI_SPACE, &length))
        *end += length;
}

static const rpi_added_token *token_at(const rpi_added_tokens *added,
                                       const rpi_added_finder *finder, const char *text,
                                       size_t left) {
    int byte = (uint8_t)*text;
    for (uint32_t i = finder->first[byte]; i < finder->first[byte + 1]; i++) {
        const rpi_added_token *token = &added->at[finder->order[i]];
        if (token->matched.count <= left &&
            memcmp(token->matched.at, text, token->matched.count) == 0)
            return token;
    }
    return NULL;
}

const rpi_added_token *rpi_added_tokens_next(const rpi_added_tokens *added,
                                             const rpi_added_finder *finder, const char *text,
                                             size_t bytes, size_t taken, bool plain_special,
                                             size_t *at, size_t *out_start, size_t *out_end) {
    for (size_t i = *at; finder->count && i < bytes; i++) {
        int byte = (uint8_t)text[i];
        if (finder->first[byte] == finder->first[byte + 1]) continue;
        const rpi_added_token *token = token_at(added, finder, text + i, bytes - i);
        if (!token) continue;
        size_t start = i, end = i + token->matched.count;
        bool counts = !(plain_special && token->special) &&
                      (!token->single_word || stands_alone(text, bytes, start, end));
        i = end - 1; /* what is found and does not count is passed over as a whole */
        if (!counts) continue;
        *at = end;
        take_spaces(token, text, bytes, taken, &start, &end);
        *out_start = start;
        *out_end = end;
        return token;
    }
    return NULL;
}
