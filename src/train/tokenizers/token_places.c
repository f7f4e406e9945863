#include "train/tokenizers/token_places.h"

#include "train/tokenizers/tokenizer_parts.h"
#include "train/tokenizers/utf8_text.h"

#include <string.h>

/* A text normalised character by character. */
typedef struct traced {
    rpi_text text;
    rpi_ids from, to; /* of each of its bytes, the bytes [from, to) of the original */
} traced;

static void free_traced(traced *t) {
    rpi_text_free(&t->text);
    rpi_ids_free(&t->from);
    rpi_ids_free(&t->to);
}

static bool is_bytes(const rpi_tokenizer *t) {
    return !t->model;
}

rp_status rpi_token_places_check(const rpi_tokenizer *t) {
    if (is_bytes(t) || strcmp(rpi_tokenizer_type(t), "WordPiece") == 0) return RP_OK;
    return RP_FAIL(UNSUPPORTED,
                   "the tokenizer %s is %s, and where its tokens lie in a text is not known; "
                   "take WordPiece, as bert's, or byte",
                   t->name, rpi_tokenizer_type(t));
}

/* ---- the normalised text ---- */

static rp_status trace_character(rpi_encoder *e, const char *text, size_t at, size_t length,
                                 traced *t) {
    const char *normal = NULL;
    size_t bytes = 0;
    RP_TRY(rpi_encoder_normalize(e, text + at, length, &normal, &bytes));
    RP_TRY(rpi_text_append(&t->text, normal, bytes));
    for (size_t i = 0; i < bytes; i++) {
        RP_TRY(rpi_ids_add(&t->from, (uint32_t)at));
        RP_TRY(rpi_ids_add(&t->to, (uint32_t)(at + length)));
    }
    return RP_OK;
}

static rp_status trace(rpi_encoder *e, const char *text, size_t bytes, traced *t) {
    const char *whole = NULL;
    size_t length, whole_bytes = 0;
    for (size_t at = 0; at < bytes; at += length) {
        (void)rpi_utf8_read(text + at, &length);
        RP_TRY(trace_character(e, text, at, length, t));
    }
    RP_TRY(rpi_encoder_normalize(e, text, bytes, &whole, &whole_bytes));
    if (whole_bytes == t->text.count &&
        (whole_bytes == 0 || memcmp(whole, t->text.at, whole_bytes) == 0))
        return RP_OK;
    return RP_FAIL(UNSUPPORTED,
                   "the tokenizer %s normalises more than a character at a time: where its "
                   "tokens lie in a text is not known",
                   rpi_encoder_tokenizer(e)->name);
}

/* ---- pieces ---- */

/* Tokens of a piece follow one another, and all but the first carry a prefix ("##"), whose
 * length is what their texts are longer than the piece. */
static size_t find_prefix(const rpi_tokenizer *t, const rpi_ids *ids, size_t first,
                          size_t bytes) {
    size_t all = 0, more = ids->count - first - 1;
    for (size_t i = first; i < ids->count; i++)
        all += strlen(rpi_tokenizer_token(t, ids->at[i]));
    return more && all > bytes ? (all - bytes) / more : 0;
}

static rp_status place_piece(rpi_encoder *e, const traced *t, const rpi_text_piece *piece,
                             rpi_ids *ids, rpi_pieces *places) {
    const rpi_tokenizer *tokenizer = rpi_encoder_tokenizer(e);
    size_t first = ids->count, at = piece->start, end = at + piece->bytes;
    RP_TRY(rpi_encoder_piece_ids(e, t->text.at + at, piece->bytes, ids));
    size_t prefix = find_prefix(tokenizer, ids, first, piece->bytes);
    for (size_t i = first; i < ids->count; i++) {
        size_t length = strlen(rpi_tokenizer_token(tokenizer, ids->at[i]));
        size_t next = at + length - (i > first ? prefix : 0);
        if (i + 1 == ids->count) next = end; /* an unknown token has another length */
        if (next <= at || next > end)
            return RP_FAIL(INTERNAL, "a token leaves its word in %s", tokenizer->name);
        size_t from = t->from.at[at], to = t->to.at[next - 1];
        RP_TRY(rpi_pieces_add(places, from, to - from));
        at = next;
    }
    return RP_OK;
}

static rp_status place_pieces(rpi_encoder *e, const traced *t, rpi_ids *ids,
                              rpi_pieces *places) {
    rpi_pieces *pieces = NULL;
    RP_TRY(rpi_encoder_pieces(e, t->text.at, t->text.count, &pieces));
    if (pieces->count && pieces->text != t->text.at)
        return RP_FAIL(
            UNSUPPORTED,
            "the tokenizer %s rewrites a text as it cuts it: where its tokens lie is "
            "not known",
            rpi_encoder_tokenizer(e)->name);
    for (size_t i = 0; i < pieces->count; i++)
        RP_TRY(place_piece(e, t, &pieces->at[i], ids, places));
    return RP_OK;
}

/* ---- all of it ---- */

/* Tokens that somebody added to the vocabulary may stand in a text: they cut it first. */
static rp_status compare(rpi_encoder *e, const char *text, size_t bytes, const rpi_ids *ids,
                         size_t first) {
    rpi_ids wanted = {0};
    rp_status status = rpi_encode(e, text, bytes, RPI_ENCODE_PLAIN_SPECIAL, &wanted, NULL);
    size_t count = ids->count - first;
    bool same =
        status == RP_OK && wanted.count == count &&
        (count == 0 || memcmp(wanted.at, ids->at + first, count * sizeof *ids->at) == 0);
    rpi_ids_free(&wanted);
    RP_TRY(status);
    if (same) return RP_OK;
    return RP_FAIL(
        UNSUPPORTED,
        "the tokenizer %s has added tokens in this text: where they lie is not known",
        rpi_encoder_tokenizer(e)->name);
}

static rp_status encode_words(rpi_encoder *e, const char *text, size_t bytes, rpi_ids *ids,
                              rpi_pieces *places) {
    traced t = {0};
    size_t first = ids->count;
    rp_status status = rpi_text_reserve(&t.text, 1);
    if (status == RP_OK) status = trace(e, text, bytes, &t);
    if (status == RP_OK) status = place_pieces(e, &t, ids, places);
    if (status == RP_OK) status = compare(e, text, bytes, ids, first);
    free_traced(&t);
    return status;
}

static rp_status encode_bytes(const char *text, size_t bytes, rpi_ids *ids,
                              rpi_pieces *places) {
    for (size_t i = 0; i < bytes; i++) {
        RP_TRY(rpi_ids_add(ids, (uint8_t)text[i]));
        RP_TRY(rpi_pieces_add(places, i, 1));
    }
    return RP_OK;
}

rp_status rpi_encode_with_places(rpi_encoder *e, const char *text, size_t bytes, rpi_ids *ids,
                                 rpi_pieces *places) {
    const rpi_tokenizer *t = rpi_encoder_tokenizer(e);
    size_t id_count = ids->count, place_count = places->count;
    RP_TRY(rpi_token_places_check(t));
    if (rpi_utf8_valid(text, bytes) < bytes)
        return RP_FAIL(CORRUPT, "the text is no UTF-8 from byte %zu on",
                       rpi_utf8_valid(text, bytes));
    rp_status status = is_bytes(t) ? encode_bytes(text, bytes, ids, places)
                                   : encode_words(e, text, bytes, ids, places);
    if (status == RP_OK) return RP_OK;
    ids->count = id_count;
    places->count = place_count;
    return status;
}
