#include "train/tokenizers/pair_merger.h"

#include <string.h>

void rpi_pair_merger_close(rpi_pair_merger *t) {
    for (size_t i = 0; i < t->waiting; i++) rpi_free(t->heap[i].where.at);
    for (size_t i = 0; i < t->fact_count; i++) rpi_free(t->facts[i].added.at);
    rpi_vocabulary_free(&t->tokens);
    rpi_pair_map_free(&t->pairs);
    rpi_free(t->symbols);
    rpi_free(t->words);
    rpi_free(t->facts);
    rpi_free(t->touched);
    rpi_free(t->heap);
    cJSON_Delete(t->merges);
    *t = (rpi_pair_merger){0};
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

rp_status rpi_pair_merger_spell(rpi_pair_merger *t,
                                rp_status (*spell)(rpi_pair_merger *t, const rpi_token *word,
                                                   uint32_t *symbols, uint32_t *out_count)) {
    size_t total = 0, count = t->counted->words.size;
    for (size_t w = 0; w < count; w++) total += t->counted->words.tokens[w].bytes;
    if (total > UINT32_MAX)
        return RP_FAIL(UNSUPPORTED, "%zu bytes of different words: train on fewer", total);
    RP_TRY(rpi_alloc_array(total, sizeof *t->symbols, "words", &t->symbols));
    RP_TRY(rpi_alloc_array(count, sizeof *t->words, "words", &t->words));
    uint32_t at = 0;
    for (size_t w = 0; w < count; w++) {
        t->words[w].start = at;
        RP_TRY(spell(t, &t->counted->words.tokens[w], t->symbols + at, &t->words[w].length));
        at += t->words[w].length;
    }
    return RP_OK;
}

/* ---- pairs ---- */

static rp_status facts_of(rpi_pair_merger *t, uint32_t left, uint32_t right,
                          rpi_merge_pair **out_facts) {
    rpi_pair_entry *entry = NULL;
    RP_TRY(rpi_pair_map_put(&t->pairs, left, right, &entry));
    if (!entry->first) {
        RP_TRY(make_room(t->fact_count, &t->fact_capacity, sizeof *t->facts, &t->facts));
        t->facts[t->fact_count++] = (rpi_merge_pair){.left = left, .right = right};
        entry->first = (uint32_t)t->fact_count;
    }
    *out_facts = &t->facts[entry->first - 1];
    return RP_OK;
}

/* More or less of a pair in a word; where there is more the word is remembered. */
static rp_status change(rpi_pair_merger *t, uint32_t left, uint32_t right, uint32_t in_word,
                        int sign) {
    rpi_merge_pair *facts = NULL;
    RP_TRY(facts_of(t, left, right, &facts));
    facts->count += sign * t->counted->counts[in_word];
    if (sign < 0) return RP_OK;
    rpi_merge_places *added = &facts->added;
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

static bool comes_first(const rpi_merge_candidate *a, const rpi_merge_candidate *b) {
    if (a->count != b->count) return a->count > b->count;
    return a->left != b->left ? a->left < b->left : a->right < b->right;
}

static rp_status push(rpi_pair_merger *t, rpi_merge_candidate added) {
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

static rpi_merge_candidate pop(rpi_pair_merger *t) {
    rpi_merge_candidate first = t->heap[0], last = t->heap[--t->waiting];
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
static rp_status push_touched(rpi_pair_merger *t) {
    for (size_t i = 0; i < t->touched_count; i++) {
        rpi_merge_pair *facts = &t->facts[t->touched[i]];
        rpi_merge_candidate next = {facts->count, facts->left, facts->right, facts->added};
        if (facts->count <= 0) {
            facts->added.count = 0;
            continue;
        }
        RP_TRY(push(t, next));
        facts->added = (rpi_merge_places){0};
    }
    t->touched_count = 0;
    return RP_OK;
}

static rp_status count_pairs(rpi_pair_merger *t) {
    for (uint32_t w = 0; w < t->counted->words.size; w++) {
        const uint32_t *symbols = t->symbols + t->words[w].start;
        for (uint32_t i = 0; i + 1 < t->words[w].length; i++)
            RP_TRY(change(t, symbols[i], symbols[i + 1], w, 1));
    }
    return push_touched(t);
}

/* ---- merging ---- */

static rp_status merge_in_word(rpi_pair_merger *t, const rpi_merge_candidate *best, uint32_t id,
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

/* "Ġthe" of "Ġt" and "he"; "they" of "the" and "##y". */
static rp_status join_texts(const rpi_pair_merger *t, const rpi_merge_candidate *best,
                            rpi_text *out) {
    const rpi_token *left = &t->tokens.tokens[best->left],
                    *right = &t->tokens.tokens[best->right];
    size_t prefix = strlen(t->prefix);
    bool cut = prefix && strncmp(right->text, t->prefix, prefix) == 0;
    RP_TRY(rpi_text_append(out, left->text, left->bytes));
    return rpi_text_append(out, right->text + (cut ? prefix : 0),
                           right->bytes - (cut ? prefix : 0));
}

static rp_status keep_merge(const rpi_pair_merger *t, const rpi_merge_candidate *best,
                            rpi_text *room) {
    const rpi_token *left = &t->tokens.tokens[best->left],
                    *right = &t->tokens.tokens[best->right];
    if (!t->merges) return RP_OK;
    room->count = 0;
    RP_TRY(rpi_text_append(room, left->text, left->bytes));
    RP_TRY(rpi_text_append(room, " ", 1));
    RP_TRY(rpi_text_append(room, right->text, right->bytes + 1));
    cJSON_AddItemToArray(t->merges, cJSON_CreateString(room->at));
    return RP_OK;
}

/* The token of a pair: a new one, unless other parts gave the same text before. */
static rp_status add_token(rpi_pair_merger *t, const rpi_merge_candidate *best,
                           uint32_t *out_id) {
    rpi_text text = {0};
    rp_status status = join_texts(t, best, &text);
    if (status == RP_OK && !rpi_vocabulary_find(&t->tokens, text.at, text.count, out_id)) {
        *out_id = (uint32_t)t->tokens.size;
        status = rpi_vocabulary_add(&t->tokens, text.at, text.count, *out_id);
    }
    if (status == RP_OK) status = keep_merge(t, best, &text);
    rpi_text_free(&text);
    return status;
}

static rp_status merge_pair(rpi_pair_merger *t, const rpi_merge_candidate *best) {
    uint32_t id = 0;
    RP_TRY(add_token(t, best, &id));
    for (size_t i = 0; i < best->where.count; i++)
        RP_TRY(merge_in_word(t, best, id, best->where.at[i]));
    return push_touched(t);
}

/* Counts in the heap may be out of date: such a pair goes back with the right one. */
static rp_status take_best(rpi_pair_merger *t, rpi_merge_candidate *out_best) {
    for (;;) {
        *out_best = (rpi_merge_candidate){0};
        if (t->waiting == 0) return RP_OK;
        rpi_merge_candidate best = pop(t);
        rpi_merge_pair *facts = NULL;
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

static rp_status merge_all(rpi_pair_merger *t, uint32_t size, rpi_training_stop stop) {
    while (t->tokens.size < size) {
        rpi_merge_candidate best;
        if (stop.stops && stop.stops(stop.context))
            return RP_FAIL(CANCELLED, "stopped; nothing was written");
        RP_TRY(take_best(t, &best));
        if (best.count < 1) return RP_OK;
        rp_status status = merge_pair(t, &best);
        rpi_free(best.where.at);
        RP_TRY(status);
    }
    return RP_OK;
}

rp_status rpi_pair_merger_run(rpi_pair_merger *t, uint32_t size, rpi_training_stop stop) {
    RP_TRY(count_pairs(t));
    return merge_all(t, size, stop);
}
