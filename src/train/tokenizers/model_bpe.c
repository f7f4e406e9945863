/* Byte-pair encoding: the pair of neighbours that was merged first in training is merged first,
 * until no pair is left. Pairs wait in a heap, so that a word of n symbols takes n log n steps.
 *
 * Source: Sennrich, Haddow, Birch, "Neural machine translation of rare words with subword
 * units", ACL 2016. */
#include "train/tokenizers/pipeline.h"

#include "train/tokenizers/pair_map.h"
#include "train/tokenizers/utf8_text.h"

#include <string.h>

enum { DIRECT = 0x250 }; /* characters whose ids are looked up without hashing */

typedef struct bpe {
    rpi_pair_map merges; /* (left, right) -> rank, id */
    uint32_t direct[DIRECT];
    uint32_t bytes[256], unknown;
    bool has_unknown, fuse_unknown, byte_fallback, ignore_merges;
} bpe;

typedef struct symbol {
    uint32_t id;
    int32_t previous, next; /* -1: none */
    bool gone;
} symbol;

typedef struct candidate {
    uint64_t order; /* rank, then position */
    uint32_t id;    /* what the pair becomes */
} candidate;

typedef struct bpe_space {
    rpi_ids initial;
    symbol *symbols;
    candidate *heap;
    size_t capacity, waiting;
} bpe_space;

static void destroy(void *data) {
    bpe *state = data;
    if (!state) return;
    rpi_pair_map_free(&state->merges);
    rpi_free(state);
}

/* ---- loading ---- */

/* "a b" in older files, ["a", "b"] in newer ones. */
static rp_status merge_parts(const cJSON *item, const char **out_left, size_t *out_left_bytes,
                             const char **out_right) {
    if (cJSON_IsString(item)) {
        const char *space = strchr(item->valuestring, ' ');
        *out_left = item->valuestring;
        *out_left_bytes = space ? (size_t)(space - item->valuestring) : 0;
        *out_right = space ? space + 1 : "";
    } else {
        const cJSON *left = cJSON_GetArrayItem(item, 0), *right = cJSON_GetArrayItem(item, 1);
        bool fits = cJSON_IsString(left) && cJSON_IsString(right);
        *out_left = fits ? left->valuestring : "";
        *out_left_bytes = strlen(*out_left);
        *out_right = fits ? right->valuestring : "";
    }
    return *out_left_bytes && **out_right ? RP_OK : RP_FAIL(CORRUPT, "no pair of tokens");
}

static rp_status add_merge(bpe *state, const rpi_vocabulary *vocabulary, const cJSON *item,
                           uint32_t rank, rpi_text *joined) {
    const char *left = NULL, *right = NULL;
    size_t left_bytes = 0;
    uint32_t left_id, right_id, id;
    RP_TRY(merge_parts(item, &left, &left_bytes, &right));
    joined->count = 0;
    RP_TRY(rpi_text_append(joined, left, left_bytes));
    RP_TRY(rpi_text_append(joined, right, strlen(right)));
    if (!rpi_vocabulary_find(vocabulary, left, left_bytes, &left_id) ||
        !rpi_vocabulary_find(vocabulary, right, strlen(right), &right_id) ||
        !rpi_vocabulary_find(vocabulary, joined->at, joined->count, &id))
        return RP_FAIL(CORRUPT,
                       "the vocabulary lacks a part of '%.*s' + '%.60s', or both as one",
                       (int)left_bytes, left, right);
    rpi_pair_entry *entry = NULL;
    RP_TRY(rpi_pair_map_put(&state->merges, left_id, right_id, &entry));
    entry->first = rank; /* the last one counts where a pair stands twice */
    entry->second = id;
    return RP_OK;
}

static rp_status load_merges(const cJSON *json, const rpi_vocabulary *vocabulary, bpe *state) {
    const cJSON *merges = NULL, *item;
    rpi_text joined = {0};
    uint32_t rank = 0;
    RP_TRY(rpi_json_member(json, "merges", &merges));
    if (!cJSON_IsArray(merges)) return RP_FAIL(CORRUPT, "'merges' is no list");
    rp_status status = RP_OK;
    cJSON_ArrayForEach(item, merges) {
        status = add_merge(state, vocabulary, item, rank++, &joined);
        if (status != RP_OK) break;
    }
    rpi_text_free(&joined);
    return status == RP_OK ? RP_OK : rpi_fail_context(status, "merge %u: ", rank - 1);
}

static rp_status refuse_others(const cJSON *json) {
    static const char *const keys[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    double dropout = 0;
    RP_TRY(rpi_json_number(json, "dropout", 0, &dropout));
    if (dropout != 0)
        return RP_FAIL(UNSUPPORTED, "dropout is %g; only BPE without it is supported", dropout);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char *text = NULL;
        RP_TRY(rpi_json_text(json, keys[i], "", &text));
        if (*text) return RP_FAIL(UNSUPPORTED, "%s is '%s'; it must be empty", keys[i], text);
    }
    return RP_OK;
}

static rp_status load_members(const cJSON *json, rpi_vocabulary *vocabulary, bpe *state) {
    RP_TRY(refuse_others(json));
    RP_TRY(rpi_vocabulary_load(json, vocabulary));
    RP_TRY(load_merges(json, vocabulary, state));
    RP_TRY(rpi_vocabulary_named(json, "unk_token", vocabulary, &state->has_unknown,
                                &state->unknown));
    RP_TRY(rpi_json_flag(json, "fuse_unk", false, &state->fuse_unknown));
    RP_TRY(rpi_json_flag(json, "byte_fallback", false, &state->byte_fallback));
    RP_TRY(rpi_json_flag(json, "ignore_merges", false, &state->ignore_merges));
    rpi_vocabulary_bytes(vocabulary, state->bytes);
    for (int32_t code = 0; code < DIRECT; code++) {
        char text[4];
        if (!rpi_vocabulary_find(vocabulary, text, rpi_utf8_write(code, text),
                                 &state->direct[code]))
            state->direct[code] = UINT32_MAX;
    }
    return RP_OK;
}

static rp_status load(const cJSON *json, rpi_vocabulary *vocabulary, void **out_state) {
    bpe *state = NULL;
    RP_TRY(rpi_alloc(sizeof *state, "a BPE model", &state));
    rp_status status = load_members(json, vocabulary, state);
    if (status == RP_OK)
        *out_state = state;
    else
        destroy(state);
    return status;
}

/* ---- symbols to begin with ---- */

static uint32_t character_id(const bpe *state, const rpi_vocabulary *vocabulary,
                             const char *text, size_t *out_bytes) {
    int32_t code = rpi_utf8_read(text, out_bytes);
    uint32_t id;
    if (code < DIRECT) return state->direct[code];
    return rpi_vocabulary_find(vocabulary, text, *out_bytes, &id) ? id : UINT32_MAX;
}

/* A character that is no token is its bytes, or unknown (several in a row may be one), or
 * nothing at all. */
static rp_status begin(const bpe *state, const rpi_vocabulary *vocabulary, const char *piece,
                       size_t bytes, rpi_ids *out) {
    bool unknown = false;
    size_t length;
    for (size_t at = 0; at < bytes; at += length) {
        bool all = false;
        uint32_t id = character_id(state, vocabulary, piece + at, &length);
        if (id != UINT32_MAX) {
            if (unknown) RP_TRY(rpi_ids_add(out, state->unknown));
            unknown = false;
            RP_TRY(rpi_ids_add(out, id));
            continue;
        }
        if (state->byte_fallback)
            RP_TRY(rpi_byte_ids_add(state->bytes, piece + at, length, &all, out));
        if (all || !state->has_unknown) continue;
        if (unknown && !state->fuse_unknown) RP_TRY(rpi_ids_add(out, state->unknown));
        unknown = true;
    }
    return unknown ? rpi_ids_add(out, state->unknown) : RP_OK;
}

/* ---- merging ---- */

static rp_status reserve(bpe_space *space, size_t count) {
    if (space->capacity >= count) return RP_OK;
    size_t capacity = 2 * count;
    RP_TRY(rpi_grow_array(0, capacity, sizeof *space->symbols, "symbols", &space->symbols));
    /* A merge takes one symbol away and adds two pairs. */
    RP_TRY(rpi_grow_array(0, 3 * capacity, sizeof *space->heap, "pairs", &space->heap));
    space->capacity = capacity;
    return RP_OK;
}

static void push(bpe_space *space, candidate added) {
    candidate *heap = space->heap;
    size_t at = space->waiting++;
    for (size_t up; at > 0; at = up) {
        up = (at - 1) / 2;
        if (heap[up].order <= added.order) break;
        heap[at] = heap[up];
    }
    heap[at] = added;
}

static candidate pop(bpe_space *space) {
    candidate *heap = space->heap, least = heap[0], last = heap[--space->waiting];
    size_t at = 0;
    for (size_t down; (down = 2 * at + 1) < space->waiting; at = down) {
        if (down + 1 < space->waiting && heap[down + 1].order < heap[down].order) down++;
        if (last.order <= heap[down].order) break;
        heap[at] = heap[down];
    }
    heap[at] = last;
    return least;
}

static void consider(const bpe *state, bpe_space *space, int32_t left) {
    const symbol *first = &space->symbols[left];
    if (first->next < 0) return;
    const rpi_pair_entry *merge =
        rpi_pair_map_get(&state->merges, first->id, space->symbols[first->next].id);
    if (merge)
        push(space, (candidate){(uint64_t)merge->first << 32 | (uint32_t)left, merge->second});
}

static void merge_all(const bpe *state, bpe_space *space) {
    symbol *symbols = space->symbols;
    while (space->waiting) {
        candidate best = pop(space);
        int32_t at = (int32_t)(uint32_t)best.order;
        symbol *left = &symbols[at];
        if (left->gone || left->next < 0) continue;
        symbol *right = &symbols[left->next];
        /* Either may have become part of something else since. */
        const rpi_pair_entry *merge = rpi_pair_map_get(&state->merges, left->id, right->id);
        if (!merge || merge->second != best.id) continue;
        left->id = best.id;
        left->next = right->next;
        right->gone = true;
        if (left->next >= 0) symbols[left->next].previous = at;
        if (left->previous >= 0) consider(state, space, left->previous);
        consider(state, space, at);
    }
}

static rp_status encode(const void *data, const rpi_vocabulary *vocabulary, void *space_data,
                        const char *piece, size_t bytes, rpi_ids *out) {
    const bpe *state = data;
    bpe_space *space = space_data;
    uint32_t whole;
    if (state->ignore_merges && rpi_vocabulary_find(vocabulary, piece, bytes, &whole))
        return rpi_ids_add(out, whole);
    space->initial.count = 0;
    RP_TRY(begin(state, vocabulary, piece, bytes, &space->initial));
    int32_t count = (int32_t)space->initial.count;
    if (count == 0) return RP_OK;
    RP_TRY(reserve(space, (size_t)count));
    for (int32_t i = 0; i < count; i++)
        space->symbols[i] =
            (symbol){space->initial.at[i], i - 1, i + 1 < count ? i + 1 : -1, false};
    space->waiting = 0;
    for (int32_t i = 0; i < count; i++) consider(state, space, i);
    merge_all(state, space);
    for (int32_t i = 0; i >= 0; i = space->symbols[i].next)
        RP_TRY(rpi_ids_add(out, space->symbols[i].id));
    return RP_OK;
}

static void space_free(void *space_data) {
    bpe_space *space = space_data;
    rpi_ids_free(&space->initial);
    rpi_free(space->symbols);
    rpi_free(space->heap);
}

const rpi_text_model_kind rpi_text_model_bpe = {
    .type = "BPE",
    .load = load,
    .destroy = destroy,
    .space_bytes = sizeof(bpe_space),
    .space_free = space_free,
    .encode = encode,
};
