/* WordPiece of BERT's kind: [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, [MASK] 4, then the characters
 * that begin a word or stand in one, then, behind "##", those inside of words, each in the
 * order of Unicode, then what was merged. */
#include "train/tokenizers/pair_merger.h"
#include "train/tokenizers/tokenizer_files.h"
#include "train/tokenizers/utf8_text.h"

#include <string.h>

extern const rpi_tokenizer_training rpi_training_wordpiece, rpi_training_wordpiece_cased;

static const char PREFIX[] = "##";
enum { CODES = 0x110000, OCCURS = 1, INSIDE = 2, LONGEST = sizeof PREFIX + 4 };

static rp_status add_special(rpi_vocabulary *tokens) {
    for (uint32_t id = 0; rpi_bert_special(id); id++)
        RP_TRY(
            rpi_vocabulary_add(tokens, rpi_bert_special(id), strlen(rpi_bert_special(id)), id));
    return RP_OK;
}

/* ---- the alphabet ---- */

/* "e", or "##e" */
static size_t write_character(int32_t code, bool inside, char text[LONGEST]) {
    size_t before = inside ? sizeof PREFIX - 1 : 0;
    memcpy(text, PREFIX, before);
    return before + rpi_utf8_write(code, text + before);
}

static void mark_characters(const rpi_word_counts *words, uint8_t *seen) {
    size_t length;
    for (size_t w = 0; w < words->words.size; w++) {
        const rpi_token *word = &words->words.tokens[w];
        for (size_t i = 0; i < word->bytes; i += length) {
            int32_t code = rpi_utf8_read(word->text + i, &length);
            seen[code] |= i ? OCCURS | INSIDE : OCCURS;
        }
    }
}

static rp_status add_characters(const uint8_t *seen, uint8_t bit, rpi_vocabulary *tokens) {
    for (int32_t code = 0; code < CODES; code++) {
        char text[LONGEST];
        if (!(seen[code] & bit)) continue;
        size_t bytes = write_character(code, bit == INSIDE, text);
        RP_TRY(rpi_vocabulary_add(tokens, text, bytes, (uint32_t)tokens->size));
    }
    return RP_OK;
}

static rp_status add_alphabet(const rpi_word_counts *words, rpi_vocabulary *tokens) {
    uint8_t *seen = NULL;
    RP_TRY(rpi_alloc_array(CODES, sizeof *seen, "characters", &seen));
    mark_characters(words, seen);
    rp_status status = add_characters(seen, OCCURS, tokens);
    if (status == RP_OK) status = add_characters(seen, INSIDE, tokens);
    rpi_free(seen);
    return status;
}

static rp_status spell(rpi_pair_merger *merger, const rpi_token *word, uint32_t *symbols,
                       uint32_t *out_count) {
    size_t length;
    *out_count = 0;
    for (size_t i = 0; i < word->bytes; i += length) {
        char text[LONGEST];
        size_t bytes = write_character(rpi_utf8_read(word->text + i, &length), i > 0, text);
        (void)rpi_vocabulary_find(&merger->tokens, text, bytes, &symbols[(*out_count)++]);
    }
    return RP_OK;
}

/* ---- training ---- */

static rp_status merge(rpi_pair_merger *merger, uint32_t size, rpi_training_stop stop) {
    RP_TRY(add_special(&merger->tokens));
    RP_TRY(add_alphabet(merger->counted, &merger->tokens));
    if (merger->tokens.size > size)
        return RP_FAIL(INVALID,
                       "a vocabulary of %u tokens; the characters of this text alone are %zu: "
                       "ask for more",
                       size, merger->tokens.size);
    RP_TRY(rpi_pair_merger_spell(merger, spell));
    return rpi_pair_merger_run(merger, size, stop);
}

static rp_status train(const rpi_word_counts *words, uint32_t size, rpi_training_stop stop,
                       bool lowercase, char **out_json) {
    rpi_pair_merger merger = {.counted = words, .prefix = PREFIX};
    rp_status status = merge(&merger, size, stop);
    if (status == RP_OK)
        status = rpi_wordpiece_json(rpi_vocabulary_json(&merger.tokens), lowercase, out_json);
    rpi_pair_merger_close(&merger);
    return status;
}

/* Of special tokens alone: it says what a word is. */
static rp_status make_cutter(bool lowercase, char **out_json) {
    rpi_vocabulary tokens = {0};
    rp_status status = add_special(&tokens);
    if (status == RP_OK)
        status = rpi_wordpiece_json(rpi_vocabulary_json(&tokens), lowercase, out_json);
    rpi_vocabulary_free(&tokens);
    return status;
}

static rp_status make_uncased(char **out_json) {
    return make_cutter(true, out_json);
}

static rp_status make_cased(char **out_json) {
    return make_cutter(false, out_json);
}

static rp_status train_uncased(const rpi_word_counts *words, uint32_t size,
                               rpi_training_stop stop, char **out_json) {
    return train(words, size, stop, true, out_json);
}

static rp_status train_cased(const rpi_word_counts *words, uint32_t size,
                             rpi_training_stop stop, char **out_json) {
    return train(words, size, stop, false, out_json);
}

const rpi_tokenizer_training rpi_training_wordpiece = {
    .name = "wordpiece",
    .help = "WordPiece, as BERT's: lower case, without accents",
    .least = 6,
    .make_cutter = make_uncased,
    .train = train_uncased,
};

const rpi_tokenizer_training rpi_training_wordpiece_cased = {
    .name = "wordpiece-cased",
    .help = "the same with case and accents",
    .least = 6,
    .make_cutter = make_cased,
    .train = train_cased,
};
