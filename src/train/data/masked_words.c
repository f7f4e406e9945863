#include "train/data/masked_words.h"

#include "base/memory.h"
#include "train/data/token_samples.h"

#include <math.h>

typedef struct row {
    const rpi_masking *masking;
    rpi_rng *rng;
    int32_t *tokens, *labels;
    int64_t count;
    int64_t *starts, *ends, *order; /* of words */
    int64_t words;
    int64_t wanted, chosen;
} row;

/* Special tokens belong to no word. */
static void find_words(row *r) {
    const rpi_masking *m = r->masking;
    bool open = false;
    for (int64_t i = 0; i < r->count; i++) {
        int32_t id = r->tokens[i];
        bool special = m->is_special[id], joins = open && m->goes_on[id];
        open = !special;
        if (special) continue;
        if (!joins) r->starts[r->words++] = i;
        r->ends[r->words - 1] = i + 1;
    }
}

static void shuffle(row *r) {
    for (int64_t i = 0; i < r->words; i++) r->order[i] = i;
    for (int64_t i = r->words - 1; i > 0; i--) {
        uint32_t j = rpi_rng_below(r->rng, (uint32_t)(i + 1));
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

static int32_t any_token(const rpi_masking *m, rpi_rng *rng) {
    for (;;) {
        uint32_t id = rpi_rng_below(rng, m->vocabulary);
        if (!m->is_special[id]) return (int32_t)id;
    }
}

static void hide(row *r, int64_t at) {
    r->labels[at] = r->tokens[at];
    r->chosen++;
    float draw = rpi_rng_uniform(r->rng);
    if (draw < 0.8f)
        r->tokens[at] = (int32_t)r->masking->mask;
    else if (draw < 0.9f)
        r->tokens[at] = any_token(r->masking, r->rng);
}

/* How many tokens a run of words from `first` on has, when all lie side by side and none was
 * chosen before; 0: it cannot be. */
static int64_t run_tokens(const row *r, int64_t first, int words) {
    if (first + words > r->words) return 0;
    for (int64_t w = first; w < first + words; w++) {
        if (w > first && r->starts[w] != r->ends[w - 1]) return 0;
        for (int64_t i = r->starts[w]; i < r->ends[w]; i++)
            if (r->labels[i] != RPI_LABEL_IGNORED) return 0;
    }
    return r->ends[first + words - 1] - r->starts[first];
}

static void choose(row *r) {
    shuffle(r);
    for (int64_t o = 0; o < r->words && r->chosen < r->wanted; o++) {
        int64_t first = r->order[o], tokens = 0;
        int run = draw_run(r->rng, r->masking->longest_run);
        for (; run > 0; run--) {
            tokens = run_tokens(r, first, run);
            if (tokens > 0 && r->chosen + tokens <= r->wanted) break;
        }
        for (int64_t i = r->starts[first]; run > 0 && i < r->starts[first] + tokens; i++)
            hide(r, i);
    }
}

rp_status rpi_masking_apply(const rpi_masking *masking, rpi_rng *rng, int64_t count,
                            int32_t *tokens, int32_t *labels, int64_t *out_valid) {
    int64_t *room = NULL;
    RP_TRY(rpi_alloc_array(3 * (size_t)count, sizeof *room, "words of a row", &room));
    row r = {.masking = masking,
             .rng = rng,
             .tokens = tokens,
             .labels = labels,
             .count = count,
             .starts = room,
             .ends = room + count,
             .order = room + 2 * count};
    find_words(&r);
    r.wanted = (int64_t)floor((double)count * masking->share + 0.5);
    if (r.wanted < 1) r.wanted = 1;
    choose(&r);
    rpi_free(room);
    *out_valid = r.chosen;
    return RP_OK;
}
