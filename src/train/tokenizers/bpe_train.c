#include "train/tokenizers/bpe_train.h"

#include "train/tokenizers/byte_level.h"
#include "train/tokenizers/pair_map.h"
#include "train/tokenizers/tokenizer_files.h"
#include "train/tokenizers/utf8_text.h"
#include "train/tokenizers/vocabulary.h"

#include <string.h>

static const char END[] = "<|endoftext|>";

/* Words that hold a pair. */
typedef struct places {
    uint32_t *at;
    size_t count, capacity;
} places;

/* A pair that waits: places may be some of its places only, where a later merge made others. */
typedef struct candidate {
    int64_t count;
    uint32_t left, right;
    places where;
} candidate;

typedef struct pair_facts {
    int64_t count;
    uint32_t left, right;
    places added; /* in this round */
} pair_facts;

typedef struct word {
    uint32_t start, length; /* of the symbols; it only gets shorter */
} word;

struct rpi_bpe_trainer {
    rpi_vocabulary counted; /* words by id, in the order in which they came */
    int64_t *counts;
    size_t counts_capacity;
    rpi_pieces pieces;
    rpi_text repaired;
    /* ---- while merging ---- */
    rpi_vocabulary tokens;
    uint32_t *symbols;
    word *words;
    rpi_pair_map pairs; /* (left, right) -> index of facts + 1 */
    pair_facts *facts;
    size_t fact_count, fact_capacity;
    uint32_t *touched; /* facts with new places in this round */
    size_t touched_count, touched_capacity;
    candidate *heap;
    size_t waiting, heap_capacity;
    cJSON *merges;
};

rp_status rpi_bpe_trainer_create(rpi_bpe_trainer **out_trainer) {
    return rpi_alloc(sizeof **out_trainer, "a trainer of BPE", out_trainer);
}

void rpi_bpe_trainer_destroy(rpi_bpe_trainer *t) {
    if (!t) return;
    for (size_t i = 0; i < t->waiting; i++) rpi_free(t->heap[i].where.at);
    for (size_t i = 0; i < t->fact_count; i++) rpi_free(t->facts[i].added.at);
    rpi_vocabulary_free(&t->counted);
    rpi_vocabulary_free(&t->tokens);
    rpi_pair_map_free(&t->pairs);
    rpi_pieces_free(&t->pieces);
    rpi_text_free(&t->repaired);
    rpi_free(t->counts);
    rpi_free(t->symbols);
    rpi_free(t->words);
    rpi_free(t->facts);
    rpi_free(t->touched);
    rpi_free(t->heap);
    cJSON_Delete(t->merges);
    rpi_free(t);
}

/* Room for one more. */
static rp_status make_room(size_t count, size_t *capacity, size_t bytes, void *in_out_list) {
    if (count < *capacity) return RP_OK;
    size_t more = *capacity ? 2 * *capacity : 16;
    RP_TRY(rpi_grow_array(count, more, bytes, "training of BPE", in_out_list));
    *capacity = more;
    return RP_OK;
}

/* ---- words ---- */

static rp_status count_word(rpi_bpe_trainer *t, const char *text, size_t bytes) {
    uint32_t id;
    if (!rpi_vocabulary_find(&t->counted, text, bytes, &id)) {
        size_t next = t->counted.size;
        if (next >= RPI_TOKENS_MOST)
            return RP_FAIL(UNSUPPORTED,
                           "more than %d different words: train on a part of these documents",
                           RPI_TOKENS_MOST);
        RP_TRY(make_room(next, &t->counts_capacity, sizeof *t->counts, &t->counts));
        id = (uint32_t)next;
        RP_TRY(rpi_vocabulary_add(&t->counted, text, bytes, id));
        t->counts[id] = 0;
    }
    t->counts[id]++;
    return RP_OK;
}

rp_status rpi_bpe_trainer_add(rpi_bpe_trainer *t, const char *text, size_t bytes) {
    size_t replaced;
    if (bytes > UINT32_MAX / 4) return RP_FAIL(INVALID, "a document of %zu bytes", bytes);
    if (rpi_utf8_valid(text, bytes) < bytes) {
        t->repaired.count = 0;
        RP_TRY(rpi_utf8_repair(text, bytes, &t->repaired, &replaced));
        text = t->repaired.at;
        bytes = t->repaired.count;
    }
    t->pieces.count = 0;
    t->pieces.text = text;
    RP_TRY(rpi_byte_level_words((rpi_piece){0, (uint32_t)bytes}, &t->pieces));
    for (size_t i = 0; i < t->pieces.count; i++)
        RP_TRY(count_word(t, text + t->pieces.at[i].start, t->pieces.at[i].bytes));
    return RP_OK;
}

/* ---- the first tokens ---- */

/* The bytes in the order of their characters. */
static rp_status add_alphabet(rpi_bpe_trainer *t, uint32_t ids[256]) {
    uint32_t next = 0;
    char text[4];
    RP_TRY(rpi_vocabulary_add(&t->tokens, END, sizeof END - 1, next++));
    for (int32_t code = 0; code < 0x180; code++) {
        int byte = rpi_byte_level_byte(code);
        if (byte < 0) continue;
        RP_TRY(rpi_vocabulary_add(&t->tokens, text, rpi_utf8_write(code, text), next));
        ids[byte] = next++;
    }
    return RP_OK;
}

static rp_status spell_words(rpi_bpe_trainer *t) {
    uint32_t ids[256];
    size_t total = 0, count = t->counted.size;
    RP_TRY(add_alphabet(t, ids));
    for (size_t w = 0; w < count; w++) total += t->counted.tokens[w].bytes;
    if (total > UINT32_MAX)
        return RP_FAIL(UNSUPPORTED, "%zu bytes of different words: train on fewer", total);
    RP_TRY(rpi_alloc_array(total, sizeof *t->symbols, "words", &t->symbols));
    RP_TRY(rpi_alloc_array(count, sizeof *t->words, "words", &t->words));
    uint32_t at = 0;
    for (size_t w = 0; w < count; w++) {
        const rpi_token *text = &t->counted.tokens[w];
        t->words[w] = (word){at, text->bytes};
        for (uint32_t i = 0; i < text->bytes; i++)
            t->symbols[at++] = ids[(uint8_t)text->text[i]];
    }
    return RP_OK;
}

/* ---- pairs ---- */

static rp_status facts_of(rpi_bpe_trainer *t, uint32_t left, uint32_t right,
                          pair_facts **out_facts) {
    rpi_pair_entry *entry = NULL;
    RP_TRY(rpi_pair_map_put(&t->pairs, left, right, &entry));
    if (!entry->first) {
        RP_TRY(make_room(t->fact_count, &t->fact_capacity, sizeof *t->facts, &t->facts));
        t->facts[t->fact_count++] = (pair_facts){.left = left, .right = right};
        entry->first = (uint32_t)t->fact_count;
    }
    *out_facts = &t->facts[entry->first - 1];
    return RP_OK;
}

/* More or less of a pair in a word; where there is more the word is remembered. */
static rp_status change(rpi_bpe_trainer *t, uint32_t left, uint32_t right, uint32_t in_word,
                        int sign) {
    pair_facts *facts = NULL;
    RP_TRY(facts_of(t, left, right, &facts));
    facts->count += sign * t->counts[in_word];
    if (sign < 0) return RP_OK;
    places *added = &facts->added;
    if (added->count == 0) {
        RP_TRY(
            make_room(t->touched_count, &t->touched_capacity, sizeof *t->touched, &t->touched));
        t->touched[t->touched_count++] = (uint32_t)(facts - t->facts);
    } else if (added->at[added->count - 1] == in_word) {
        return RP_OK;
    }
    RP_TRY(make_room(added->count, &added->capacity, sizeof *added->at, &added->at));
    added->at[added->count++] = in_word;
    return RP_OK;
}

static bool comes_first(const candidate *a, const candidate *b) {
    if (a->count != b->count) return a->count > b->count;
    return a->left != b->left ? a->left < b->left : a->right < b->right;
}

static rp_status push(rpi_bpe_trainer *t, candidate added) {
    RP_TRY(make_room(t->waiting, &t->heap_capacity, sizeof *t->heap, &t->heap));
    size_t at = t->waiting++;
    for (size_t up; at > 0; at = up) {
        up = (at - 1) / 2;
        if (!comes_first(&added, &t->heap[up])) break;
        t->heap[at] = t->heap[up];
    }
    t->heap[at] = added;
    return RP_OK;
}

static candidate pop(rpi_bpe_trainer *t) {
    candidate first = t->heap[0], last = t->heap[--t->waiting];
    size_t at = 0;
    for (size_t down; (down = 2 * at + 1) < t->waiting; at = down) {
        if (down + 1 < t->waiting && comes_first(&t->heap[down + 1], &t->heap[down])) down++;
        if (!comes_first(&t->heap[down], &last)) break;
        t->heap[at] = t->heap[down];
    }
    t->heap[at] = last;
    return first;
}

/* Pairs that became more frequent in this round go to the heap, with where they are new. */
static rp_status push_touched(rpi_bpe_trainer *t) {
    for (size_t i = 0; i < t->touched_count; i++) {
        pair_facts *facts = &t->facts[t->touched[i]];
        candidate next = {facts->count, facts->left, facts->right, facts->added};
        if (facts->count <= 0) {
            facts->added.count = 0;
            continue;
        }
        RP_TRY(push(t, next));
        facts->added = (places){0};
    }
    t->touched_count = 0;
    return RP_OK;
}

static rp_status count_pairs(rpi_bpe_trainer *t) {
    for (uint32_t w = 0; w < t->counted.size; w++) {
        const uint32_t *symbols = t->symbols + t->words[w].start;
        for (uint32_t i = 0; i + 1 < t->words[w].length; i++)
            RP_TRY(change(t, symbols[i], symbols[i + 1], w, 1));
    }
    return push_touched(t);
}

/* ---- merging ---- */

static rp_status merge_in_word(rpi_bpe_trainer *t, const candidate *best, uint32_t id,
                               uint32_t w) {
    uint32_t *symbols = t->symbols + t->words[w].start, length = t->words[w].length;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < length; i++) {
        bool found =
            symbols[i] == best->left && i + 1 < length && symbols[i + 1] == best->right;
        if (!found) {
            symbols[kept++] = symbols[i];
            continue;
        }
        if (kept > 0) {
            RP_TRY(change(t, symbols[kept - 1], best->left, w, -1));
            RP_TRY(change(t, symbols[kept - 1], id, w, 1));
        }
        symbols[kept++] = id;
        i++;
        if (i + 1 < length) {
            RP_TRY(change(t, best->right, symbols[i + 1], w, -1));
            RP_TRY(change(t, id, symbols[i + 1], w, 1));
        }
    }
    t->words[w].length = kept;
    return RP_OK;
}

/* The token of a pair: a new one, unless other parts gave the same text before. */
static rp_status add_token(rpi_bpe_trainer *t, const candidate *best, uint32_t *out_id) {
    const rpi_token *left = &t->tokens.tokens[best->left],
                    *right = &t->tokens.tokens[best->right];
    rpi_text text = {0}, merge = {0};
    rp_status status = rpi_text_append(&text, left->text, left->bytes);
    if (status == RP_OK) status = rpi_text_append(&text, right->text, right->bytes);
    if (status == RP_OK) status = rpi_text_append(&merge, left->text, left->bytes);
    if (status == RP_OK) status = rpi_text_append(&merge, " ", 1);
    if (status == RP_OK) status = rpi_text_append(&merge, right->text, right->bytes + 1);
    if (status == RP_OK) cJSON_AddItemToArray(t->merges, cJSON_CreateString(merge.at));
    if (status == RP_OK && !rpi_vocabulary_find(&t->tokens, text.at, text.count, out_id)) {
        *out_id = (uint32_t)t->tokens.size;
        status = rpi_vocabulary_add(&t->tokens, text.at, text.count, *out_id);
    }
    rpi_text_free(&text);
    rpi_text_free(&merge);
    return status;
}

static rp_status merge_pair(rpi_bpe_trainer *t, const candidate *best) {
    uint32_t id = 0;
    RP_TRY(add_token(t, best, &id));
    for (size_t i = 0; i < best->where.count; i++)
        RP_TRY(merge_in_word(t, best, id, best->where.at[i]));
    return push_touched(t);
}

/* Counts in the heap may be out of date: such a pair goes back with the right one. */
static rp_status take_best(rpi_bpe_trainer *t, candidate *out_best) {
    for (;;) {
        *out_best = (candidate){0};
        if (t->waiting == 0) return RP_OK;
        candidate best = pop(t);
        pair_facts *facts = NULL;
        rp_status status = facts_of(t, best.left, best.right, &facts);
        if (status == RP_OK && best.count != facts->count) {
            best.count = facts->count;
            status = push(t, best);
            if (status == RP_OK) continue;
        }
        if (status != RP_OK || best.count < 1) {
            rpi_free(best.where.at);
            return status;
        }
        *out_best = best;
        return RP_OK;
    }
}

static rp_status merge_all(rpi_bpe_trainer *t, uint32_t size, bool (*stops)(void *context),
                           void *context) {
    while (t->tokens.size < size) {
        candidate best;
        if (stops && stops(context)) return RP_FAIL(CANCELLED, "stopped; nothing was written");
        RP_TRY(take_best(t, &best));
        if (best.count < 1) return RP_OK;
        rp_status status = merge_pair(t, &best);
        rpi_free(best.where.at);
        RP_TRY(status);
    }
    return RP_OK;
}

static rp_status write_json(rpi_bpe_trainer *t, char **out_json) {
    cJSON *vocab = cJSON_CreateObject(), *merges = t->merges;
    for (size_t id = 0; id < t->tokens.size; id++)
        cJSON_AddNumberToObject(vocab, t->tokens.tokens[id].text, (double)id);
    t->merges = NULL;
    return rpi_byte_level_json(vocab, merges, END, out_json);
}

rp_status rpi_bpe_trainer_finish(rpi_bpe_trainer *t, uint32_t size,
                                 bool (*stops)(void *context), void *context, char **out_json) {
    if (size < RPI_BPE_LEAST || size > RPI_TOKENS_MOST)
        return RP_FAIL(INVALID, "a vocabulary of %u tokens; %d to %d are allowed", size,
                       RPI_BPE_LEAST, RPI_TOKENS_MOST);
    t->merges = cJSON_CreateArray();
    if (!t->merges) return RP_FAIL(NOMEM, "no memory for merges");
    RP_TRY(spell_words(t));
    RP_TRY(count_pairs(t));
    RP_TRY(merge_all(t, size, stops, context));
    return write_json(t, out_json);
}
