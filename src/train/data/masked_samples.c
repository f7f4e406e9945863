#include "train/data/masked_samples.h"

#include "base/memory.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

enum { LONGEST_RUN = 3, LONGEST_ALLOWED = 16 };
static const double SHARE = 0.15;

struct rpi_masked_samples {
    rpi_masked_options options;
    rpi_token_samples windows; /* of sequence - 2: one token less than a language model's */
    uint32_t cls, sep, mask, vocabulary;
    bool *is_special, *goes_on; /* by id; goes_on: it is no first piece of a word */
};

static rp_status find_tokens(const rpi_tokenizer *tokenizer, rpi_masked_samples *s) {
    if (!rpi_tokenizer_special(tokenizer, RPI_SPECIAL_CLS, &s->cls) ||
        !rpi_tokenizer_special(tokenizer, RPI_SPECIAL_SEP, &s->sep) ||
        !rpi_tokenizer_special(tokenizer, RPI_SPECIAL_MASK, &s->mask))
        return RP_FAIL(INVALID,
                       "the tokenizer %s lacks [CLS], [SEP] or [MASK], which a masked language "
                       "model needs; that of bert has them",
                       rpi_tokenizer_name(tokenizer));
    s->vocabulary = rpi_tokenizer_size(tokenizer);
    RP_TRY(rpi_alloc_array(s->vocabulary, 1, "tokens", &s->is_special));
    RP_TRY(rpi_alloc_array(s->vocabulary, 1, "tokens", &s->goes_on));
    for (uint32_t id = 0; id < s->vocabulary; id++) {
        const char *text = rpi_tokenizer_token(tokenizer, id);
        s->is_special[id] = !text || rpi_tokenizer_is_special(tokenizer, id);
        s->goes_on[id] = text && text[0] == '#' && text[1] == '#' && text[2];
    }
    s->is_special[s->cls] = s->is_special[s->sep] = s->is_special[s->mask] = true;
    for (uint32_t id = 0; id < s->vocabulary; id++)
        if (!s->is_special[id]) return RP_OK;
    return RP_FAIL(INVALID, "the tokenizer %s has special tokens only",
                   rpi_tokenizer_name(tokenizer));
}

static rp_status check(const rpi_token_file *file, rpi_masked_samples *s) {
    rpi_masked_options *o = &s->options;
    if (o->share == 0) o->share = SHARE;
    if (o->longest_run == 0) o->longest_run = LONGEST_RUN;
    if (o->sequence < 3)
        return RP_FAIL(INVALID, "a sequence of %lld; 3 is the least: [CLS], a token, [SEP]",
                       (long long)o->sequence);
    if (!(o->share > 0 && o->share < 1) || o->longest_run < 1 ||
        o->longest_run > LONGEST_ALLOWED)
        return RP_FAIL(INVALID, "a share of %g in runs of %d words; below 1 and 1 to %d",
                       o->share, o->longest_run, LONGEST_ALLOWED);
    if (file->vocabulary > s->vocabulary)
        return RP_FAIL(INVALID, "the tokens are of %u, the tokenizer has %u", file->vocabulary,
                       s->vocabulary);
    if (file->count < o->sequence - 2)
        return RP_FAIL(INVALID, "%lld tokens: too few for one sequence of %lld",
                       (long long)file->count, (long long)o->sequence);
    return RP_OK;
}

rp_status rpi_masked_samples_open(const rpi_token_file *file, const rpi_tokenizer *tokenizer,
                                  const rpi_masked_options *options,
                                  rpi_masked_samples **out_samples) {
    rpi_masked_samples *s = NULL;
    RP_TRY(rpi_alloc(sizeof *s, "samples", &s));
    s->options = *options;
    rp_status status = find_tokens(tokenizer, s);
    if (status == RP_OK) status = check(file, s);
    if (status != RP_OK) {
        rpi_masked_samples_close(s);
        return status;
    }
    int64_t window = s->options.sequence - 2;
    s->windows =
        (rpi_token_samples){.file = file, .sequence = window, .count = file->count / window};
    *out_samples = s;
    return RP_OK;
}

void rpi_masked_samples_close(rpi_masked_samples *s) {
    if (!s) return;
    rpi_free(s->is_special);
    rpi_free(s->goes_on);
    rpi_free(s);
}

int64_t rpi_masked_samples_count(const rpi_masked_samples *s) {
    return s->windows.count;
}

/* ---- choosing ---- */

typedef struct row {
    int32_t *inputs, *labels;
    int64_t count;
    int64_t *starts, *order; /* of words */
    int64_t words;
    int64_t wanted, chosen;
    rpi_rng rng;
} row;

/* Special tokens belong to no word. */
static void find_words(const rpi_masked_samples *s, row *r) {
    bool open = false;
    for (int64_t i = 0; i < r->count; i++) {
        if (s->is_special[r->inputs[i]]) {
            open = false;
            continue;
        }
        if (!open || !s->goes_on[r->inputs[i]]) r->starts[r->words++] = i;
        open = true;
    }
}

static int64_t word_end(const rpi_masked_samples *s, const row *r, int64_t word) {
    int64_t end = r->starts[word] + 1;
    while (end < r->count && !s->is_special[r->inputs[end]] && s->goes_on[r->inputs[end]])
        end++;
    return end;
}

static void shuffle(row *r) {
    for (int64_t i = 0; i < r->words; i++) r->order[i] = i;
    for (int64_t i = r->words - 1; i > 0; i--) {
        uint32_t j = rpi_rng_below(&r->rng, (uint32_t)(i + 1));
        int64_t taken = r->order[i];
        r->order[i] = r->order[j];
        r->order[j] = taken;
    }
}

/* 1 to `most`, n with a probability proportional to 1/n. */
static int draw_run(rpi_rng *rng, int most) {
    double total = 0;
    for (int n = 1; n <= most; n++) total += 1.0 / n;
    double left = (double)rpi_rng_uniform(rng) * total;
    for (int n = 1; n < most; n++) {
        left -= 1.0 / n;
        if (left < 0) return n;
    }
    return most;
}

static int32_t any_token(const rpi_masked_samples *s, rpi_rng *rng) {
    for (;;) {
        uint32_t id = rpi_rng_below(rng, s->vocabulary);
        if (!s->is_special[id]) return (int32_t)id;
    }
}

static void hide(const rpi_masked_samples *s, row *r, int64_t at) {
    r->labels[at] = r->inputs[at];
    r->chosen++;
    float draw = rpi_rng_uniform(&r->rng);
    if (draw < 0.8f)
        r->inputs[at] = (int32_t)s->mask;
    else if (draw < 0.9f)
        r->inputs[at] = any_token(s, &r->rng);
}

/* How many tokens a run of words from `first` on has, when all lie side by side and none was
 * chosen before; 0: it cannot be. The row is as it was while runs are looked at. */
static int64_t run_tokens(const int64_t *ends, const row *r, int64_t first, int words) {
    if (first + words > r->words) return 0;
    for (int64_t w = first; w < first + words; w++) {
        if (w > first && r->starts[w] != ends[w - 1]) return 0;
        for (int64_t i = r->starts[w]; i < ends[w]; i++)
            if (r->labels[i] != RPI_LABEL_IGNORED) return 0;
    }
    return ends[first + words - 1] - r->starts[first];
}

static void choose(const rpi_masked_samples *s, row *r, const int64_t *ends) {
    shuffle(r);
    for (int64_t o = 0; o < r->words && r->chosen < r->wanted; o++) {
        int64_t first = r->order[o], tokens = 0;
        int run = draw_run(&r->rng, s->options.longest_run);
        for (; run > 0; run--) {
            tokens = run_tokens(ends, r, first, run);
            if (tokens > 0 && r->chosen + tokens <= r->wanted) break;
        }
        for (int64_t i = r->starts[first]; run > 0 && i < r->starts[first] + tokens; i++)
            hide(s, r, i);
    }
}

static rp_status hide_some(const rpi_masked_samples *s, uint64_t stream, row *r) {
    int64_t *room = NULL;
    size_t count = (size_t)r->count;
    RP_TRY(rpi_alloc_array(3 * count, sizeof *room, "words of a row", &room));
    r->starts = room;
    r->order = room + count;
    int64_t *ends = room + 2 * count;
    r->rng = rpi_rng_make(s->options.seed, RPI_RNG_AUGMENT, stream);
    find_words(s, r);
    for (int64_t w = 0; w < r->words; w++) ends[w] = word_end(s, r, w);
    r->wanted = (int64_t)floor((double)r->count * s->options.share + 0.5);
    if (r->wanted < 1) r->wanted = 1;
    choose(s, r, ends);
    rpi_free(room);
    return RP_OK;
}

rp_status rpi_masked_sample_read(const rpi_masked_samples *s, int64_t epoch, int64_t index,
                                 const rpi_token_rows *rows, int64_t row_index,
                                 int64_t *out_valid) {
    int64_t sequence = s->options.sequence, window = sequence - 2, count = s->windows.count;
    if (index < 0 || index >= count)
        return RP_FAIL(INVALID, "sample %lld; there are %lld", (long long)index,
                       (long long)count);
    row r = {.inputs = rows->inputs + row_index * sequence,
             .labels = rows->labels + row_index * sequence,
             .count = sequence};
    uint32_t *ids = (uint32_t *)r.inputs;
    RP_TRY(rpi_token_file_read(s->windows.file, index * window, window, ids + 1));
    for (int64_t i = 1; i <= window; i++)
        if (ids[i] >= s->vocabulary)
            return RP_FAIL(CORRUPT, "token %u of sample %lld; the tokenizer has %u", ids[i],
                           (long long)index, s->vocabulary);
    ids[0] = s->cls;
    ids[sequence - 1] = s->sep;
    for (int64_t i = 0; i < sequence; i++) r.labels[i] = RPI_LABEL_IGNORED;
    RP_TRY(hide_some(s, (uint64_t)(epoch * count + index), &r));
    *out_valid = r.chosen;
    return RP_OK;
}
