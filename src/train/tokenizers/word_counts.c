#include "train/tokenizers/word_counts.h"

#include "train/tokenizers/byte_level.h"
#include "train/tokenizers/tokenizer_parts.h"
#include "train/tokenizers/utf8_text.h"

#include <string.h>

rp_status rpi_word_counts_open(const char *json, rpi_word_counts *out) {
    *out = (rpi_word_counts){0};
    if (!json) return RP_OK;
    rpi_word_counts made = {0};
    rp_status status = rpi_tokenizer_parse("words", json, strlen(json), &made.cutter);
    if (status == RP_OK) status = rpi_encoder_create(made.cutter, &made.encoder);
    if (status == RP_OK)
        *out = made;
    else
        rpi_word_counts_close(&made);
    return status;
}

void rpi_word_counts_close(rpi_word_counts *c) {
    rpi_encoder_destroy(c->encoder);
    rpi_tokenizer_close(c->cutter);
    rpi_vocabulary_free(&c->words);
    rpi_pieces_free(&c->pieces);
    rpi_text_free(&c->repaired);
    rpi_free(c->counts);
    *c = (rpi_word_counts){0};
}

static rp_status make_room(rpi_word_counts *c) {
    if (c->words.size < c->capacity) return RP_OK;
    size_t more = c->capacity ? 2 * c->capacity : 1024;
    RP_TRY(
        rpi_grow_array(c->words.size, more, sizeof *c->counts, "counts of words", &c->counts));
    c->capacity = more;
    return RP_OK;
}

static rp_status count_word(rpi_word_counts *c, const char *text, size_t bytes) {
    uint32_t id;
    if (!rpi_vocabulary_find(&c->words, text, bytes, &id)) {
        if (c->words.size >= RPI_TOKENS_MOST)
            return RP_FAIL(UNSUPPORTED,
                           "more than %d different words: train on a part of these documents",
                           RPI_TOKENS_MOST);
        RP_TRY(make_room(c));
        id = (uint32_t)c->words.size;
        RP_TRY(rpi_vocabulary_add(&c->words, text, bytes, id));
        c->counts[id] = 0;
    }
    c->counts[id]++;
    return RP_OK;
}

static rp_status count_pieces(rpi_word_counts *c, const rpi_pieces *pieces) {
    for (size_t i = 0; i < pieces->count; i++)
        if (pieces->at[i].bytes)
            RP_TRY(count_word(c, pieces->text + pieces->at[i].start, pieces->at[i].bytes));
    return RP_OK;
}

static rp_status cut_and_count(rpi_word_counts *c, const char *text, size_t bytes) {
    rpi_pieces *pieces = &c->pieces;
    if (c->encoder) {
        RP_TRY(rpi_encoder_normalize(c->encoder, text, bytes, &text, &bytes));
        RP_TRY(rpi_encoder_pieces(c->encoder, text, bytes, &pieces));
    } else {
        pieces->count = 0;
        pieces->text = text;
        RP_TRY(rpi_byte_level_words((rpi_text_piece){0, (uint32_t)bytes}, pieces));
    }
    return count_pieces(c, pieces);
}

rp_status rpi_word_counts_add(rpi_word_counts *c, const char *text, size_t bytes) {
    size_t replaced;
    if (bytes > UINT32_MAX / 4) return RP_FAIL(INVALID, "a document of %zu bytes", bytes);
    if (rpi_utf8_valid(text, bytes) < bytes) {
        c->repaired.count = 0;
        RP_TRY(rpi_utf8_repair(text, bytes, &c->repaired, &replaced));
        text = c->repaired.at;
        bytes = c->repaired.count;
    }
    return cut_and_count(c, text, bytes);
}
