#include "base/memory.h"

#include "base/lacking.h"
#include "base/status.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

static _Thread_local long fail_countdown;
static _Thread_local long allocation_count;

long rpi_memory_fail_after(long n) {
    long ran = allocation_count;
    allocation_count = 0;
    fail_countdown = n;
    return ran;
}

static int must_fail(void) {
    allocation_count++;
    return fail_countdown > 0 && --fail_countdown == 0;
}

/* Callers pass a T**, which may not be written through a void** (aliasing). */
static void put_pointer(void *out_pointer, void *pointer) {
    memcpy(out_pointer, &pointer, sizeof pointer);
}

static rp_status no_memory(const char *what, size_t bytes) {
    char advice[256];
    return RP_FAIL(NOMEM, "no memory for %s (%zu bytes)%s", what, bytes,
                   rpi_lacking_text(ENOMEM, advice, sizeof advice));
}

/* Names in parentheses: the analyser's model is a macro of the same name. */
rp_status(rpi_alloc)(size_t bytes, const char *what, void *out_pointer) {
    size_t rounded = rpi_align_up(bytes);
    if (rounded == 0) rounded = RPI_ALIGNMENT;
    void *pointer =
        rounded < bytes || must_fail() ? NULL : aligned_alloc(RPI_ALIGNMENT, rounded);
    if (!pointer) return no_memory(what, bytes);
    memset(pointer, 0, rounded);
    put_pointer(out_pointer, pointer);
    return RP_OK;
}

rp_status(rpi_alloc_array)(size_t count, size_t element_bytes, const char *what,
                           void *out_pointer) {
    if (element_bytes && count > SIZE_MAX / element_bytes)
        return RP_FAIL(NOMEM, "no memory for %zu elements of %s", count, what);
    return (rpi_alloc)(count * element_bytes, what, out_pointer);
}

rp_status rpi_grow_array(size_t old_count, size_t new_count, size_t element_bytes,
                         const char *what, void *in_out_pointer) {
    void *grown = NULL;
    RP_TRY(rpi_alloc_array(new_count, element_bytes, what, &grown));
    void *old;
    memcpy(&old, in_out_pointer, sizeof old);
    if (old) memcpy(grown, old, old_count * element_bytes);
    rpi_free(old);
    put_pointer(in_out_pointer, grown);
    return RP_OK;
}

rp_status rpi_strdup(const char *text, char **out_copy) {
    size_t bytes = strlen(text) + 1;
    char *copy = NULL;
    RP_TRY(rpi_alloc(bytes, "a string", &copy));
    memcpy(copy, text, bytes);
    *out_copy = copy;
    return RP_OK;
}

void(rpi_free)(void *pointer) {
    free(pointer);
}

rp_status rpi_alloc_pages(size_t bytes, const char *what, void *out_pointer) {
    void *pointer = must_fail() ? MAP_FAILED
                                : mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pointer == MAP_FAILED) return no_memory(what, bytes);
    put_pointer(out_pointer, pointer);
    return RP_OK;
}

void rpi_free_pages(void *pointer, size_t bytes) {
    if (pointer) munmap(pointer, bytes ? bytes : 1);
}

typedef struct arena_block {
    struct arena_block *next;
    size_t used, bytes;
    _Alignas(RPI_ALIGNMENT) unsigned char data[];
} arena_block;

struct rpi_arena {
    arena_block *blocks; /* newest first; only the newest is filled further */
    size_t block_bytes;
};

rp_status rpi_arena_create(size_t block_bytes, rpi_arena **out_arena) {
    rpi_arena *arena = NULL;
    RP_TRY(rpi_alloc(sizeof *arena, "an arena", &arena));
    arena->block_bytes = block_bytes;
    *out_arena = arena;
    return RP_OK;
}

rp_status rpi_arena_alloc(rpi_arena *arena, size_t bytes, void *out_pointer) {
    size_t rounded = rpi_align_up(bytes);
    arena_block *block = arena->blocks;
    if (!block || block->bytes - block->used < rounded) {
        size_t room = rounded > arena->block_bytes ? rounded : arena->block_bytes;
        RP_TRY(rpi_alloc(sizeof *block + room, "an arena block", &block));
        block->next = arena->blocks;
        block->bytes = room;
        arena->blocks = block;
    }
    put_pointer(out_pointer, block->data + block->used);
    block->used += rounded;
    return RP_OK;
}

void rpi_arena_destroy(rpi_arena *arena) {
    if (!arena) return;
    for (arena_block *block = arena->blocks, *next; block; block = next) {
        next = block->next;
        rpi_free(block);
    }
    rpi_free(arena);
}

double rpi_memory_most_held(void) {
    struct rusage use;
    return getrusage(RUSAGE_SELF, &use) == 0 ? 1024.0 * (double)use.ru_maxrss : NAN;
}
