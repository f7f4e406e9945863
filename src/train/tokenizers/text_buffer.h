/* Growing texts and lists of token ids, and pieces of a text. */
#ifndef RPI_TRAIN_TEXT_BUFFER_H
#define RPI_TRAIN_TEXT_BUFFER_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zeros are an empty one; clearing keeps the memory for the next use. */
typedef struct rpi_text {
    char *at;
    size_t count, capacity;
} rpi_text;

rp_status rpi_text_reserve(rpi_text *text, size_t more);
rp_status rpi_text_append(rpi_text *text, const char *bytes, size_t count);
void rpi_text_free(rpi_text *text);

typedef struct rpi_ids {
    uint32_t *at;
    size_t count, capacity;
} rpi_ids;

rp_status rpi_ids_append(rpi_ids *ids, const uint32_t *from, size_t count);
void rpi_ids_free(rpi_ids *ids);

static inline rp_status rpi_ids_add(rpi_ids *ids, uint32_t id) {
    if (ids->count == ids->capacity) return rpi_ids_append(ids, &id, 1);
    ids->at[ids->count++] = id;
    return RP_OK;
}

/* Pieces of one text, which is borrowed: of another buffer or of the caller. */
typedef struct rpi_text_piece {
    uint32_t start, bytes;
} rpi_text_piece;

typedef struct rpi_pieces {
    const char *text;
    rpi_text_piece *at;
    size_t count, capacity;
} rpi_pieces;

rp_status rpi_pieces_grow(rpi_pieces *pieces);
void rpi_pieces_free(rpi_pieces *pieces);

/* Empty pieces are left out. */
static inline rp_status rpi_pieces_add(rpi_pieces *pieces, size_t start, size_t bytes) {
    if (bytes == 0) return RP_OK;
    if (pieces->count == pieces->capacity) RP_TRY(rpi_pieces_grow(pieces));
    pieces->at[pieces->count++] = (rpi_text_piece){(uint32_t)start, (uint32_t)bytes};
    return RP_OK;
}

#endif
