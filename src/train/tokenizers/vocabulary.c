#include "train/tokenizers/vocabulary.h"

#include <string.h>

enum { BLOCK = 1 << 16, LEAST_SLOTS = 256 };

uint32_t rpi_text_hash(const char *text, size_t bytes) {
    uint64_t hash = bytes * 0x9e3779b97f4a7c15u, word;
    for (; bytes >= 8; text += 8, bytes -= 8) {
        memcpy(&word, text, 8);
        hash = (hash ^ word) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    }
    for (word = 0; bytes > 0; text++, bytes--) word = word << 8 | (unsigned char)*text;
    hash = (hash ^ word) * 0xff51afd7ed558ccdu;
    return (uint32_t)(hash ^ hash >> 32);
}

static void place(rpi_vocabulary *v, uint32_t id) {
    const rpi_token *token = &v->tokens[id];
    size_t i = rpi_text_hash(token->text, token->bytes) & v->mask;
    while (v->slots[i]) i = (i + 1) & v->mask;
    v->slots[i] = id + 1;
}

static rp_status grow_slots(rpi_vocabulary *v) {
    size_t slots = v->slots ? 2 * (v->mask + 1) : LEAST_SLOTS;
    uint32_t *old = v->slots;
    RP_TRY(rpi_alloc_array(slots, sizeof *v->slots, "a vocabulary", &v->slots));
    size_t old_slots = old ? v->mask + 1 : 0;
    v->mask = slots - 1;
    for (size_t i = 0; i < old_slots; i++)
        if (old[i]) place(v, old[i] - 1);
    rpi_free(old);
    return RP_OK;
}

static rp_status reserve(rpi_vocabulary *v, uint32_t id) {
    if (!v->arena) RP_TRY(rpi_arena_create(BLOCK, &v->arena));
    if (!v->slots || 2 * (v->count + 1) > v->mask + 1) RP_TRY(grow_slots(v));
    if (id < v->capacity) return RP_OK;
    size_t capacity = v->capacity ? 2 * v->capacity : LEAST_SLOTS;
    if (capacity <= id) capacity = (size_t)id + 1;
    RP_TRY(rpi_grow_array(v->size, capacity, sizeof *v->tokens, "a vocabulary", &v->tokens));
    v->capacity = capacity;
    return RP_OK;
}

rp_status rpi_vocabulary_add(rpi_vocabulary *v, const char *text, size_t bytes, uint32_t id) {
    uint32_t found;
    if (id >= RPI_TOKENS_MOST)
        return RP_FAIL(CORRUPT, "token '%.60s' has id %u; %d is the largest allowed", text, id,
                       RPI_TOKENS_MOST - 1);
    if (rpi_vocabulary_find(v, text, bytes, &found))
        return found == id
                   ? RP_OK
                   : RP_FAIL(CORRUPT, "token '%.60s' has two ids, %u and %u", text, found, id);
    if (id < v->size && v->tokens[id].text)
        return RP_FAIL(CORRUPT, "id %u has two tokens, '%.60s' and '%.60s'", id,
                       v->tokens[id].text, text);
    RP_TRY(reserve(v, id));
    char *copy = NULL;
    RP_TRY(rpi_arena_alloc(v->arena, bytes + 1, &copy));
    memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    v->tokens[id] = (rpi_token){copy, (uint32_t)bytes};
    if (id >= v->size) v->size = (size_t)id + 1;
    v->count++;
    place(v, id);
    return RP_OK;
}

bool rpi_vocabulary_find(const rpi_vocabulary *v, const char *text, size_t bytes,
                         uint32_t *out_id) {
    if (!v->slots) return false;
    for (size_t i = rpi_text_hash(text, bytes) & v->mask; v->slots[i]; i = (i + 1) & v->mask) {
        const rpi_token *token = &v->tokens[v->slots[i] - 1];
        if (token->bytes != bytes || memcmp(token->text, text, bytes) != 0) continue;
        *out_id = v->slots[i] - 1;
        return true;
    }
    return false;
}

void rpi_vocabulary_free(rpi_vocabulary *v) {
    rpi_arena_destroy(v->arena);
    rpi_free(v->tokens);
    rpi_free(v->slots);
    *v = (rpi_vocabulary){0};
}
