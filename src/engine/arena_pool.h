/* Arenas of one kind for the activations of runs. Each is lent for as long as its contents are
 * needed; the pool grows to the largest number of runs at a time. One thread at a time. */
#ifndef RPI_ENGINE_ARENA_POOL_H
#define RPI_ENGINE_ARENA_POOL_H

#include "redpoll/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct rpi_loan {
    unsigned char *data;
    size_t bytes;
    bool is_lent;
    struct rpi_loan *next;
} rpi_loan;

/* Zeros are an empty pool. */
typedef struct rpi_arena_pool {
    rpi_loan *arenas; /* all arenas, lent or not */
} rpi_arena_pool;

/* Makes sure that a run which needs so many bytes gets them, if no other run is in flight. */
rp_status rpi_arena_pool_reserve(rpi_arena_pool *pool, size_t bytes);
/* Allocates if more runs are in flight than ever before. */
rp_status rpi_arena_pool_lend(rpi_arena_pool *pool, size_t bytes, rpi_loan **out_arena);
void rpi_arena_pool_return(rpi_loan *arena); /* NULL is fine */
void rpi_arena_pool_close(rpi_arena_pool *pool);

#endif
