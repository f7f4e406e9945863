/* Unigram: the cut of a text into pieces whose scores, log probabilities, sum highest, found by
 * Viterbi over a trie of pieces.
 *
 * Source: Kudo, "Subword regularization", ACL 2018. */
#include "train/tokenizers/pipeline.h"

#include "train/tokenizers/pair_map.h"
#include "train/tokenizers/utf8_text.h"

#include <math.h>
#include <string.h>

#define UNKNOWN_PENALTY 10.0 /* below the worst piece */

typedef struct unigram {
    double *scores; /* by id */
    size_t count;
    /* (node, byte) -> child; a child's second is the id + 1 of the piece that ends there. */
    rpi_pair_map trie;
    double unknown_score;
    uint32_t unknown, bytes[256];
    bool has_unknown, byte_fallback;
} unigram;

/* The best way to a position. */
typedef struct node {
    double score;
    uint32_t start, id;
    bool reached;
} node;

typedef struct unigram_space {
    node *nodes;
    size_t capacity;
    rpi_pieces cut; /* from the end */
} unigram_space;

static void destroy(void *data) {
    unigram *state = data;
    if (!state) return;
    rpi_free(state->scores);
    rpi_pair_map_free(&state->trie);
    rpi_free(state);
}

static rp_status add_piece(unigram *state, const char *text, uint32_t id) {
    uint32_t in_trie = 0;
    rpi_pair_entry *entry = NULL;
    for (const char *at = text; *at; at++) {
        RP_TRY(rpi_pair_map_put(&state->trie, in_trie, (uint8_t)*at, &entry));
        if (!entry->first) entry->first = (uint32_t)state->trie.count;
        in_trie = entry->first;
    }
    if (entry) entry->second = id + 1;
    return RP_OK;
}

/* [[piece, score], ...] by id; the unknown one is piece like any other. */
static rp_status load_pieces(const cJSON *json, rpi_vocabulary *vocabulary, unigram *state) {
    const cJSON *vocab = NULL, *item;
    double least = 0;
    RP_TRY(rpi_json_member(json, "vocab", &vocab));
    int count = cJSON_IsArray(vocab) ? cJSON_GetArraySize(vocab) : 0;
    if (count < 1) return RP_FAIL(CORRUPT, "'vocab' is no list of pieces with scores");
    RP_TRY(rpi_alloc_array((size_t)count, sizeof *state->scores, "scores", &state->scores));
    cJSON_ArrayForEach(item, vocab) {
        const cJSON *piece = cJSON_GetArrayItem(item, 0), *score = cJSON_GetArrayItem(item, 1);
        if (!cJSON_IsString(piece) || !cJSON_IsNumber(score) || !isfinite(score->valuedouble))
            return RP_FAIL(CORRUPT, "vocab: entry %zu is no piece with a score", state->count);
        uint32_t id = (uint32_t)state->count;
        const char *text = piece->valuestring;
        RP_TRY(rpi_vocabulary_add(vocabulary, text, strlen(text), id));
        RP_TRY(add_piece(state, text, id));
        if (id == 0 || score->valuedouble < least) least = score->valuedouble;
        state->scores[state->count++] = score->valuedouble;
    }
    state->unknown_score = least - UNKNOWN_PENALTY;
    return RP_OK;
}

static rp_status load_members(const cJSON *json, rpi_vocabulary *vocabulary, unigram *state) {
    double unknown = -1;
    RP_TRY(load_pieces(json, vocabulary, state));
    RP_TRY(rpi_json_number(json, "unk_id", -1, &unknown));
    RP_TRY(rpi_json_flag(json, "byte_fallback", false, &state->byte_fallback));
    if (unknown >= (double)state->count)
        return RP_FAIL(CORRUPT, "unk_id is %.0f; there are %zu pieces", unknown, state->count);
    state->has_unknown = unknown >= 0;
    state->unknown = state->has_unknown ? (uint32_t)unknown : 0;
    rpi_vocabulary_bytes(vocabulary, state->bytes);
    return RP_OK;
}

static rp_status load(const cJSON *json, rpi_vocabulary *vocabulary, void **out_state) {
    unigram *state = NULL;
    RP_TRY(rpi_alloc(sizeof *state, "a Unigram model", &state));
    rp_status status = load_members(json, vocabulary, state);
    if (status == RP_OK)
        *out_state = state;
    else
        destroy(state);
    return status;
}

/* ---- encoding ---- */

static rp_status reserve(unigram_space *space, size_t count) {
    if (space->capacity < count) {
        RP_TRY(rpi_grow_array(0, 2 * count, sizeof *space->nodes, "a lattice", &space->nodes));
        space->capacity = 2 * count;
    }
    memset(space->nodes, 0, count * sizeof *space->nodes);
    return RP_OK;
}

static void improve(node *to, double score, size_t start, uint32_t id) {
    if (to->reached && score <= to->score) return;
    *to = (node){.score = score, .start = (uint32_t)start, .id = id, .reached = true};
}

static rp_status forward(const unigram *state, const char *text, size_t bytes, node *nodes) {
    size_t length;
    for (size_t at = 0; at < bytes; at += length) {
        (void)rpi_utf8_read(text + at, &length);
        bool single = false;
        uint32_t in_trie = 0;
        for (size_t end = at; end < bytes;) {
            const rpi_pair_entry *entry =
                rpi_pair_map_get(&state->trie, in_trie, (uint8_t)text[end]);
            if (!entry) break;
            in_trie = entry->first;
            end++;
            if (!entry->second) continue;
            uint32_t id = entry->second - 1;
            improve(&nodes[end], nodes[at].score + state->scores[id], at, id);
            single = single || end - at == length;
        }
        if (single) continue;
        if (!state->has_unknown)
            return RP_FAIL(CORRUPT, "no piece matches '%.*s' and the model has no unk_id",
                           (int)length, text + at);
        improve(&nodes[at + length], nodes[at].score + state->unknown_score, at,
                state->unknown);
    }
    return RP_OK;
}

/* From the end; neighbours that are unknown become one. */
static rp_status backward(const unigram *state, size_t bytes, const node *nodes,
                          rpi_pieces *cut) {
    size_t unknown_end = 0;
    for (size_t end = bytes; end > 0; end = nodes[end].start) {
        bool unknown = state->has_unknown && nodes[end].id == state->unknown;
        if (unknown && !unknown_end) unknown_end = end;
        if (unknown && nodes[end].start > 0) continue;
        size_t start = unknown ? 0 : end;
        if (unknown_end) RP_TRY(rpi_pieces_add(cut, start, unknown_end - start));
        unknown_end = 0;
        if (!unknown) RP_TRY(rpi_pieces_add(cut, nodes[end].start, end - nodes[end].start));
    }
    return RP_OK;
}

static rp_status add_ids(const unigram *state, const rpi_vocabulary *vocabulary,
                         const char *text, size_t bytes, rpi_ids *out) {
    uint32_t id;
    bool all = false;
    if (rpi_vocabulary_find(vocabulary, text, bytes, &id)) return rpi_ids_add(out, id);
    if (state->byte_fallback) RP_TRY(rpi_byte_ids_add(state->bytes, text, bytes, &all, out));
    return all ? RP_OK : rpi_ids_add(out, state->unknown);
}

static rp_status encode(const void *data, const rpi_vocabulary *vocabulary, void *space_data,
                        const char *piece, size_t bytes, rpi_ids *out) {
    const unigram *state = data;
    unigram_space *space = space_data;
    RP_TRY(reserve(space, bytes + 1));
    RP_TRY(forward(state, piece, bytes, space->nodes));
    space->cut.count = 0;
    RP_TRY(backward(state, bytes, space->nodes, &space->cut));
    for (size_t i = space->cut.count; i > 0; i--) {
        rpi_text_piece part = space->cut.at[i - 1];
        RP_TRY(add_ids(state, vocabulary, piece + part.start, part.bytes, out));
    }
    return RP_OK;
}

static void space_free(void *space_data) {
    unigram_space *space = space_data;
    rpi_free(space->nodes);
    rpi_pieces_free(&space->cut);
}

const rpi_text_model_kind rpi_text_model_unigram = {
    .type = "Unigram",
    .load = load,
    .destroy = destroy,
    .space_bytes = sizeof(unigram_space),
    .space_free = space_free,
    .encode = encode,
};
