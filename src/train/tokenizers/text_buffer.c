#include "train/tokenizers/text_buffer.h"

#include "base/memory.h"

#include <string.h>

enum { LEAST = 64 };

static size_t grown(size_t capacity, size_t wanted) {
    size_t twice = capacity < LEAST ? LEAST : 2 * capacity;
    return twice < wanted ? wanted : twice;
}

rp_status rpi_text_reserve(rpi_text *text, size_t more) {
    if (text->capacity - text->count >= more) return RP_OK;
    size_t capacity = grown(text->capacity, text->count + more);
    RP_TRY(rpi_grow_array(text->count, capacity, 1, "text", &text->at));
    text->capacity = capacity;
    return RP_OK;
}

rp_status rpi_text_append(rpi_text *text, const char *bytes, size_t count) {
    RP_TRY(rpi_text_reserve(text, count));
    if (count) memcpy(text->at + text->count, bytes, count);
    text->count += count;
    return RP_OK;
}

void rpi_text_free(rpi_text *text) {
    rpi_free(text->at);
    *text = (rpi_text){0};
}

rp_status rpi_ids_append(rpi_ids *ids, const uint32_t *from, size_t count) {
    if (ids->capacity - ids->count < count) {
        size_t capacity = grown(ids->capacity, ids->count + count);
        RP_TRY(rpi_grow_array(ids->count, capacity, sizeof *ids->at, "token ids", &ids->at));
        ids->capacity = capacity;
    }
    if (count) memcpy(ids->at + ids->count, from, count * sizeof *from);
    ids->count += count;
    return RP_OK;
}

void rpi_ids_free(rpi_ids *ids) {
    rpi_free(ids->at);
    *ids = (rpi_ids){0};
}

rp_status rpi_pieces_grow(rpi_pieces *pieces) {
    size_t capacity = grown(pieces->capacity, 0);
    RP_TRY(rpi_grow_array(pieces->count, capacity, sizeof *pieces->at, "pieces of a text",
                          &pieces->at));
    pieces->capacity = capacity;
    return RP_OK;
}

void rpi_pieces_free(rpi_pieces *pieces) {
    rpi_free(pieces->at);
    *pieces = (rpi_pieces){0};
}
