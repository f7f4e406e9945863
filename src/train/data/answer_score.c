#include "train/data/answer_score.h"

#include "train/tokenizers/normalizers.h"
#include "train/tokenizers/utf8_text.h"

#include <string.h>

/* ---- words ---- */

static bool is_punctuation(int32_t code) {
    return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') ||
           (code >= '[' && code <= '`') || (code >= '{' && code <= '~');
}

static rp_status drop_punctuation(const rpi_text *text, rpi_text *out) {
    size_t length;
    for (size_t i = 0; i < text->count; i += length)
        if (!is_punctuation(rpi_utf8_read(text->at + i, &length)))
            RP_TRY(rpi_text_append(out, text->at + i, length));
    return RP_OK;
}

static bool is_article(const char *word, size_t bytes) {
    static const char *const articles[] = {"a", "an", "the"};
    for (size_t i = 0; i < sizeof articles / sizeof articles[0]; i++)
        if (strlen(articles[i]) == bytes && memcmp(word, articles[i], bytes) == 0) return true;
    return false;
}

/* Bytes of characters of one kind at the start of a text: of words, or others. */
static size_t run_length(const char *text, size_t bytes, bool *out_is_word) {
    size_t length, at = 0;
    for (; at < bytes; at += length) {
        bool is_word = (rpi_utf8_class(rpi_utf8_read(text + at, &length)) &
                        (RPI_LETTER | RPI_NUMBER)) != 0;
        if (at == 0) *out_is_word = is_word;
        if (is_word != *out_is_word) break;
    }
    return at;
}

/* An article is a word by itself: what stands beside it is no letter, but need not be a blank.
 */
static rp_status drop_articles(const rpi_text *text, rpi_text *out) {
    size_t length;
    for (size_t i = 0; i < text->count; i += length) {
        bool is_word = false;
        length = run_length(text->at + i, text->count - i, &is_word);
        RP_TRY(is_word && is_article(text->at + i, length)
                   ? rpi_text_append(out, " ", 1)
                   : rpi_text_append(out, text->at + i, length));
    }
    return RP_OK;
}

static rp_status join_words(const rpi_text *text, rpi_text *out) {
    size_t length, start = out->count;
    bool is_apart = false;
    for (size_t i = 0; i < text->count; i += length) {
        bool is_blank = (rpi_utf8_class(rpi_utf8_read(text->at + i, &length)) & RPI_SPACE) != 0;
        if (!is_blank && is_apart && out->count > start) RP_TRY(rpi_text_append(out, " ", 1));
        if (!is_blank) RP_TRY(rpi_text_append(out, text->at + i, length));
        is_apart = is_blank;
    }
    return RP_OK;
}

rp_status rpi_answer_words(rpi_answer answer, rpi_text *out) {
    rpi_text lower = {0}, plain = {0}, bare = {0};
    rp_status status = rpi_lowercase_apply(NULL, NULL, answer.text, answer.bytes, &lower);
    if (status == RP_OK) status = drop_punctuation(&lower, &plain);
    if (status == RP_OK) status = drop_articles(&plain, &bare);
    if (status == RP_OK) status = join_words(&bare, out);
    rpi_text_free(&lower);
    rpi_text_free(&plain);
    rpi_text_free(&bare);
    return status;
}

/* ---- scores ---- */

static size_t word_length(const char *text, size_t bytes) {
    const char *blank = bytes ? memchr(text, ' ', bytes) : NULL;
    return blank ? (size_t)(blank - text) : bytes;
}

/* How often a word stands in the first `bytes` of a text of words. */
static int count_word(const rpi_text *text, size_t bytes, const char *word, size_t length) {
    int count = 0;
    for (size_t at = 0; at < bytes;) {
        size_t other = word_length(text->at + at, text->count - at);
        count += other == length && memcmp(text->at + at, word, length) == 0;
        at += other + 1;
    }
    return count;
}

static int count_words(const rpi_text *text) {
    int count = text->count > 0;
    for (size_t i = 0; i < text->count; i++) count += text->at[i] == ' ';
    return count;
}

/* A word counts as long as the other has it at least as often as it came until here. */
static int count_common(const rpi_text *a, const rpi_text *b) {
    int common = 0;
    for (size_t at = 0; at < a->count;) {
        size_t length = word_length(a->at + at, a->count - at);
        int before = count_word(a, at, a->at + at, length);
        common += before < count_word(b, b->count, a->at + at, length);
        at += length + 1;
    }
    return common;
}

static rpi_answer_score score_words(const rpi_text *a, const rpi_text *b) {
    bool same = a->count == b->count && (a->count == 0 || memcmp(a->at, b->at, a->count) == 0);
    rpi_answer_score score = {.exact = same, .f1 = same};
    if (a->count == 0 || b->count == 0) return score;
    double common = count_common(a, b);
    double precision = common / count_words(a), recall = common / count_words(b);
    score.f1 = common > 0 ? 2 * precision * recall / (precision + recall) : 0;
    return score;
}

static rp_status score_all(const rpi_text *words, const rpi_answer *right, size_t count,
                           rpi_text *room, rpi_answer_score *best) {
    bool any = false;
    for (size_t i = 0; i < count; i++) {
        room->count = 0;
        RP_TRY(rpi_answer_words(right[i], room));
        if (room->count == 0) continue;
        rpi_answer_score score = score_words(words, room);
        if (score.exact > best->exact) best->exact = score.exact;
        if (score.f1 > best->f1) best->f1 = score.f1;
        any = true;
    }
    if (!any) *best = score_words(words, &(rpi_text){0});
    return RP_OK;
}

rp_status rpi_answer_score_best(rpi_answer predicted, const rpi_answer *right, size_t count,
                                rpi_answer_score *out_score) {
    rpi_text words = {0}, room = {0};
    rpi_answer_score best = {0};
    rp_status status = rpi_answer_words(predicted, &words);
    if (status == RP_OK) status = score_all(&words, right, count, &room, &best);
    rpi_text_free(&words);
    rpi_text_free(&room);
    if (status == RP_OK) *out_score = best;
    return status;
}
