#include "train/data/masked_samples.h"

#include "base/memory.h"
#include "train/data/bert_tokens.h"
#include "train/data/masked_words.h"

#include <string.h>

enum { LONGEST_RUN = 3, LONGEST_ALLOWED = 16, LEAST_SEQUENCE = 5 };
enum { AROUND = 3, LEAST_WINDOW = 2 }; /* [CLS] and two [SEP]; a token for each piece */
enum { STRIDE = 64 };                  /* documents that one entry of the index stands for */
enum { TRIES = 10 };                   /* to find a sample of another document */
static const double SHARE = 0.15;

struct rpi_masked_samples {
    const rpi_token_file *file;
    int64_t sequence, window, count;
    int64_t *before; /* samples before document 0, STRIDE, 2 STRIDE, ... */
    rpi_masking masking;
    uint32_t cls, sep, pad;
    bool *is_special, *goes_on, *ends_sentence; /* by id */
};

/* ---- tokens ---- */

/* A tokenizer of bytes has no texts: its ids are the bytes. */
static bool ends_sentence(const rpi_tokenizer *tokenizer, uint32_t id) {
    const char *text = rpi_tokenizer_token(tokenizer, id);
    bool is_byte = strcmp(rpi_tokenizer_type(tokenizer), "byte") == 0 && id < 256;
    char last = is_byte ? (char)id : '\0';
    if (text && *text) last = text[strlen(text) - 1];
    return last && strchr(".!?", last);
}

static rp_status learn_tokens(const rpi_tokenizer *tokenizer, rpi_masked_samples *s) {
    rpi_bert_tokens found = rpi_bert_tokens_of(tokenizer);
    uint32_t own = rpi_tokenizer_size(tokenizer), all = found.vocabulary, plain = 0;
    s->cls = found.cls;
    s->sep = found.sep;
    s->pad = found.pad;
    s->masking.mask = found.mask;
    s->masking.vocabulary = all;
    RP_TRY(rpi_alloc_array(all, 1, "tokens", &s->is_special));
    RP_TRY(rpi_alloc_array(all, 1, "tokens", &s->goes_on));
    RP_TRY(rpi_alloc_array(all, 1, "tokens", &s->ends_sentence));
    bool is_byte = strcmp(rpi_tokenizer_type(tokenizer), "byte") == 0;
    for (uint32_t id = 0; id < all; id++) {
        const char *text = id < own ? rpi_tokenizer_token(tokenizer, id) : NULL;
        bool known = id < own && (text || is_byte);
        s->is_special[id] = !known || rpi_tokenizer_is_special(tokenizer, id);
        s->goes_on[id] = text && text[0] == '#' && text[1] == '#' && text[2];
        s->ends_sentence[id] = id < own && ends_sentence(tokenizer, id);
    }
    s->is_special[s->cls] = s->is_special[s->sep] = true;
    s->is_special[s->masking.mask] = s->is_special[s->pad] = true;
    for (uint32_t id = 0; id < all; id++) plain += !s->is_special[id];
    s->masking.is_special = s->is_special;
    s->masking.goes_on = s->goes_on;
    if (plain) return RP_OK;
    return RP_FAIL(INVALID, "the tokenizer %s has special tokens only",
                   rpi_tokenizer_name(tokenizer));
}

/* ---- windows of documents ---- */

static int64_t document_start(const rpi_masked_samples *s, int64_t document) {
    return rpi_token_file_end(s->file, document - 1);
}

/* A window of one token cannot be cut in two. */
static int64_t windows_of(const rpi_masked_samples *s, int64_t document) {
    int64_t tokens = rpi_token_file_end(s->file, document) - document_start(s, document);
    return tokens / s->window + (tokens % s->window >= LEAST_WINDOW);
}

static rp_status index_documents(rpi_masked_samples *s) {
    int64_t documents = s->file->documents;
    RP_TRY(rpi_alloc_array((size_t)(documents / STRIDE + 1), sizeof *s->before, "documents",
                           &s->before));
    for (int64_t d = 0; d < documents; d++) {
        if (d % STRIDE == 0) s->before[d / STRIDE] = s->count;
        s->count += windows_of(s, d);
    }
    if (s->count) return RP_OK;
    return RP_FAIL(INVALID, "%lld tokens in %lld documents: none has two, which make a pair",
                   (long long)s->file->count, (long long)documents);
}

typedef struct window {
    int64_t document, start, count; /* tokens of the file */
} window;

static window find_window(const rpi_masked_samples *s, int64_t index) {
    int64_t low = 0, high = (s->file->documents - 1) / STRIDE;
    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (s->before[middle] <= index)
            low = middle;
        else
            high = middle - 1;
    }
    int64_t document = low * STRIDE, left = index - s->before[low];
    for (int64_t windows; (windows = windows_of(s, document)) <= left; document++)
        left -= windows;
    int64_t start = document_start(s, document) + left * s->window;
    int64_t rest = rpi_token_file_end(s->file, document) - start;
    return (window){document, start, rest < s->window ? rest : s->window};
}

/* ---- opening ---- */

static rp_status check(const rpi_token_file *file, const rpi_tokenizer *tokenizer,
                       const rpi_masked_options *o, rpi_masked_samples *s) {
    s->masking.share = o->share == 0 ? SHARE : o->share;
    s->masking.longest_run = o->longest_run == 0 ? LONGEST_RUN : o->longest_run;
    if (o->sequence < LEAST_SEQUENCE || o->sequence > INT32_MAX)
        return RP_FAIL(INVALID,
                       "a sequence of %lld; %d is the least: [CLS] a [SEP] b [SEP], a token "
                       "for a and b each",
                       (long long)o->sequence, LEAST_SEQUENCE);
    if (!(s->masking.share > 0 && s->masking.share < 1) || s->masking.longest_run < 1 ||
        s->masking.longest_run > LONGEST_ALLOWED)
        return RP_FAIL(INVALID, "a share of %g in runs of %d words; below 1 and 1 to %d",
                       s->masking.share, s->masking.longest_run, LONGEST_ALLOWED);
    if (file->vocabulary > rpi_tokenizer_size(tokenizer))
        return RP_FAIL(INVALID, "the tokens are of %u, the tokenizer has %u", file->vocabulary,
                       rpi_tokenizer_size(tokenizer));
    s->file = file;
    s->sequence = o->sequence;
    s->window = o->sequence - AROUND;
    RP_TRY(learn_tokens(tokenizer, s));
    return index_documents(s);
}

rp_status rpi_masked_samples_open(const rpi_token_file *file, const rpi_tokenizer *tokenizer,
                                  const rpi_masked_options *options,
                                  rpi_masked_samples **out_samples) {
    rpi_masked_samples *s = NULL;
    RP_TRY(rpi_alloc(sizeof *s, "samples", &s));
    rp_status status = check(file, tokenizer, options, s);
    if (status == RP_OK)
        *out_samples = s;
    else
        rpi_masked_samples_close(s);
    return status;
}

void rpi_masked_samples_close(rpi_masked_samples *s) {
    if (!s) return;
    rpi_free(s->before);
    rpi_free(s->is_special);
    rpi_free(s->goes_on);
    rpi_free(s->ends_sentence);
    rpi_free(s);
}

int64_t rpi_masked_samples_count(const rpi_masked_samples *s) {
    return s->count;
}

uint32_t rpi_masked_samples_vocabulary(const rpi_masked_samples *s) {
    return s->masking.vocabulary;
}

/* ---- pairs ---- */

static rp_status read_tokens(const rpi_masked_samples *s, int64_t first, int64_t count,
                             int32_t *out) {
    RP_TRY(rpi_token_file_read(s->file, first, count, (uint32_t *)out));
    for (int64_t i = 0; i < count; i++)
        if ((uint32_t)out[i] >= s->masking.vocabulary)
            return RP_FAIL(CORRUPT, "token %d at place %lld; the tokenizer has %u", out[i],
                           (long long)(first + i), s->masking.vocabulary);
    return RP_OK;
}

/* How many of a window's tokens, which `tokens` holds, are its first piece: any number, or that
 * up to the end of a sentence which is next to it, and at most a quarter of the window away. */
static int64_t draw_cut(const rpi_masked_samples *s, rpi_rng *rng, const int32_t *tokens,
                        int64_t count) {
    int64_t cut = 1 + rpi_rng_below(rng, (uint32_t)(count - 1));
    for (int64_t away = 0; away <= count / 4; away++) {
        int64_t before = cut - away, behind = cut + away;
        if (before >= 1 && s->ends_sentence[tokens[before - 1]]) return before;
        if (behind < count && s->ends_sentence[tokens[behind - 1]]) return behind;
    }
    return cut;
}

/* A sample other than `index`, of another document where one is met soon. */
static window draw_other(const rpi_masked_samples *s, const rpi_masked_draw *draw, rpi_rng *rng,
                         int64_t index, int64_t document) {
    window other = {0};
    int64_t place = index - draw->first;
    bool inside = place >= 0 && place < draw->count;
    for (int i = 0; i < TRIES; i++) {
        int64_t at = rpi_rng_below(rng, (uint32_t)(draw->count - inside));
        if (inside && at >= place) at++;
        other = find_window(s, draw->first + at);
        if (other.document != document) break;
    }
    return other;
}

/* The tokens of a window, without the one that ends its document: where that is missing the
 * text was cut off, and a model would soon know that nothing follows so. */
static rp_status read_window(const rpi_masked_samples *s, window *w, int32_t *out) {
    RP_TRY(read_tokens(s, w->start, w->count, out));
    if (w->count > LEAST_WINDOW && s->is_special[out[w->count - 1]]) w->count--;
    return RP_OK;
}

/* Where the text ends that a second piece may be of: with its document, or with the samples
 * that it may be of. */
static int64_t text_end(const rpi_masked_samples *s, const rpi_masked_draw *draw,
                        const window *w) {
    window last = find_window(s, draw->first + draw->count - 1);
    if (last.document == w->document) return last.start + last.count;
    return rpi_token_file_end(s->file, w->document);
}

/* Text from the cut of another sample on, in place of the second piece, as much as there is
 * room for: were it shorter than what follows would be, its length would tell. */
static rp_status replace(const rpi_masked_samples *s, const rpi_masked_draw *draw, rpi_rng *rng,
                         int64_t index, int64_t document, int32_t *second, int64_t *count) {
    window other = draw_other(s, draw, rng, index, document), piece = {0};
    int32_t *tokens = NULL;
    RP_TRY(rpi_alloc_array((size_t)other.count, sizeof *tokens, "tokens", &tokens));
    rp_status status = read_window(s, &other, tokens);
    if (status == RP_OK) {
        piece.start = other.start + draw_cut(s, rng, tokens, other.count);
        int64_t left = text_end(s, draw, &other) - piece.start;
        piece.count = left < *count ? left : *count;
        status = read_window(s, &piece, second);
        *count = piece.count;
    }
    rpi_free(tokens);
    return status;
}

/* [CLS] first [SEP] second [SEP] into `tokens`; how many tokens the pieces have. */
static rp_status read_pair(const rpi_masked_samples *s, const rpi_masked_draw *draw,
                           rpi_rng *rng, int64_t index, int32_t *tokens, int64_t pieces[2],
                           int32_t *next) {
    window w = find_window(s, index);
    RP_TRY(read_window(s, &w, tokens + 1));
    pieces[0] = draw_cut(s, rng, tokens + 1, w.count);
    pieces[1] = w.count - pieces[0];
    int32_t *second = tokens + 2 + pieces[0];
    memmove(second, second - 1, (size_t)pieces[1] * sizeof *second);
    *next = rpi_rng_uniform(rng) < 0.5f && draw->count > 1;
    if (*next) {
        pieces[1] = s->window - pieces[0];
        RP_TRY(replace(s, draw, rng, index, w.document, second, &pieces[1]));
    }
    tokens[0] = (int32_t)s->cls;
    second[-1] = second[pieces[1]] = (int32_t)s->sep;
    return RP_OK;
}

rp_status rpi_masked_sample_read(const rpi_masked_samples *s, const rpi_masked_draw *draw,
                                 int64_t index, const rpi_masked_rows *rows, int64_t row,
                                 int64_t *out_valid) {
    if (index < 0 || index >= s->count)
        return RP_FAIL(INVALID, "sample %lld; there are %lld", (long long)index,
                       (long long)s->count);
    int64_t at = row * s->sequence, pieces[2];
    int32_t *tokens = rows->tokens + at, *labels = rows->labels + at;
    rpi_rng rng =
        rpi_rng_make(draw->seed, RPI_RNG_AUGMENT, (uint64_t)(draw->epoch * s->count + index));
    RP_TRY(read_pair(s, draw, &rng, index, tokens, pieces, &rows->next[row]));
    int64_t second = pieces[0] + 2, used = second + pieces[1] + 1;
    for (int64_t i = 0; i < s->sequence; i++) {
        if (i >= used) tokens[i] = (int32_t)s->pad;
        rows->segments[at + i] = i >= second && i < used;
        rows->documents[at + i] = i >= used;
        labels[i] = RPI_LABEL_IGNORED;
    }
    return rpi_masking_apply(&s->masking, &rng, used, tokens, labels, out_valid);
}
