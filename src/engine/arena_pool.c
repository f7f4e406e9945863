#include "engine/arena_pool.h"

#include "base/memory.h"
#include "base/status.h"

/* The smallest arena that holds `bytes`, or the largest if none does; `any`: arenas in use
 * count, too. */
static rpi_loan *best(const rpi_arena_pool *pool, size_t bytes, bool any) {
    rpi_loan *found = NULL;
    for (rpi_loan *arena = pool->arenas; arena; arena = arena->next) {
        if (arena->is_lent && !any) continue;
        bool fits = arena->bytes >= bytes, fitted = found && found->bytes >= bytes;
        if (!found || (fits && !fitted) ||
            (fits == fitted &&
             (fits ? arena->bytes < found->bytes : arena->bytes > found->bytes)))
            found = arena;
    }
    return found;
}

/* A free arena of at least `bytes`: one that is too small is replaced by a larger one. */
static rp_status free_arena(rpi_arena_pool *pool, size_t bytes, rpi_loan **out_arena) {
    rpi_loan *arena = best(pool, bytes, false);
    if (!arena) {
        RP_TRY(rpi_alloc(sizeof *arena, "an arena", &arena));
        arena->next = pool->arenas;
        pool->arenas = arena;
    }
    *out_arena = arena;
    if (arena->data && arena->bytes >= bytes) return RP_OK;
    rpi_free(arena->data);
    arena->data = NULL;
    arena->bytes = 0;
    RP_TRY(rpi_alloc(bytes, "activations", &arena->data));
    arena->bytes = bytes;
    return RP_OK;
}

rp_status rpi_arena_pool_reserve(rpi_arena_pool *pool, size_t bytes) {
    const rpi_loan *largest = best(pool, bytes, true);
    if (largest && largest->data && largest->bytes >= bytes) return RP_OK;
    rpi_loan *arena = NULL;
    return free_arena(pool, bytes, &arena);
}

rp_status rpi_arena_pool_lend(rpi_arena_pool *pool, size_t bytes, rpi_loan **out_arena) {
    rpi_loan *arena = NULL;
    RP_TRY(free_arena(pool, bytes, &arena));
    arena->is_lent = true;
    *out_arena = arena;
    return RP_OK;
}

void rpi_arena_pool_return(rpi_loan *arena) {
    if (arena) arena->is_lent = false;
}

void rpi_arena_pool_close(rpi_arena_pool *pool) {
    while (pool->arenas) {
        rpi_loan *next = pool->arenas->next;
        rpi_free(pool->arenas->data);
        rpi_free(pool->arenas);
        pool->arenas = next;
    }
}
