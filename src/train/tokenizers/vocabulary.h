/* Tokens and their ids, both ways. */
#ifndef RPI_TRAIN_VOCABULARY_H
#define RPI_TRAIN_VOCABULARY_H

#include "base/memory.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { RPI_TOKENS_MOST = 1 << 22 }; /* ids are below; more are a damaged file */

typedef struct rpi_token {
    const char *text; /* with a NUL behind it; NULL: no token has this id */
    uint32_t bytes;
} rpi_token;

typedef struct rpi_vocabulary {
    rpi_arena *arena;
    rpi_token *tokens; /* by id */
    size_t size;       /* the largest id and one */
    size_t capacity;
    uint32_t *slots; /* id + 1; 0: free */
    size_t mask, count;
} rpi_vocabulary;

/* RP_CORRUPT: the id belongs to another token, or the token has another id. */
rp_status rpi_vocabulary_add(rpi_vocabulary *v, const char *text, size_t bytes, uint32_t id);
bool rpi_vocabulary_find(const rpi_vocabulary *v, const char *text, size_t bytes,
                         uint32_t *out_id);
void rpi_vocabulary_free(rpi_vocabulary *v); /* zeros are fine */

uint32_t rpi_text_hash(const char *text, size_t bytes);

#endif
