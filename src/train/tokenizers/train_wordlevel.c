/* WordLevel: 0 is <|endoftext|>, 1 is [UNK], then come the most frequent words, the most
 * frequent one first, which is the order that an adaptive softmax wants. */
#include "base/status.h"
#include "train/tokenizers/tokenizer_files.h"
#include "train/tokenizers/tokenizer_train.h"

#include <stdlib.h>
#include <string.h>

extern const rpi_tokenizer_training rpi_training_wordlevel;

typedef struct counted_word {
    const char *text;
    uint32_t bytes;
    int64_t count;
} counted_word;

/* Ties in the order of their bytes, as in Hugging Face's WordLevelTrainer. */
static int by_count(const void *left, const void *right) {
    const counted_word *a = left, *b = right;
    if (a->count != b->count) return a->count > b->count ? -1 : 1;
    return strcmp(a->text, b->text);
}

static rp_status add_special(rpi_vocabulary *tokens) {
    RP_TRY(rpi_vocabulary_add(tokens, "<|endoftext|>", 13, 0));
    return rpi_vocabulary_add(tokens, "[UNK]", 5, 1);
}

static rp_status add_words(const counted_word *sorted, size_t count, uint32_t size,
                           rpi_vocabulary *tokens) {
    uint32_t id;
    for (size_t i = 0; i < count && tokens->size < size; i++)
        /* A NUL cannot be said in the tokenizer's file. */
        if (!memchr(sorted[i].text, 0, sorted[i].bytes) &&
            !rpi_vocabulary_find(tokens, sorted[i].text, sorted[i].bytes, &id))
            RP_TRY(rpi_vocabulary_add(tokens, sorted[i].text, sorted[i].bytes,
                                      (uint32_t)tokens->size));
    return RP_OK;
}

static rp_status choose_words(const rpi_word_counts *words, uint32_t size,
                              rpi_vocabulary *tokens) {
    counted_word *sorted = NULL;
    size_t count = words->words.size;
    RP_TRY(rpi_alloc_array(count, sizeof *sorted, "words", &sorted));
    for (size_t i = 0; i < count; i++)
        sorted[i] = (counted_word){words->words.tokens[i].text, words->words.tokens[i].bytes,
                                   words->counts[i]};
    if (count) qsort(sorted, count, sizeof *sorted, by_count);
    rp_status status = add_words(sorted, count, size, tokens);
    rpi_free(sorted);
    return status;
}

static rp_status make(const rpi_word_counts *words, uint32_t size, char **out_json) {
    rpi_vocabulary tokens = {0};
    rp_status status = add_special(&tokens);
    if (status == RP_OK && words) status = choose_words(words, size, &tokens);
    if (status == RP_OK) status = rpi_word_level_json(rpi_vocabulary_json(&tokens), out_json);
    rpi_vocabulary_free(&tokens);
    return status;
}

static rp_status make_cutter(char **out_json) {
    return make(NULL, 0, out_json);
}

static rp_status train(const rpi_word_counts *words, uint32_t size, rpi_training_stop stop,
                       char **out_json) {
    (void)stop;
    return make(words, size, out_json);
}

const rpi_tokenizer_training rpi_training_wordlevel = {
    .name = "wordlevel",
    .help = "whole words and marks, the most frequent first; 0 ends a document",
    .least = 3,
    .make_cutter = make_cutter,
    .train = train,
};
