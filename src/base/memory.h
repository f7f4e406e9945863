/* Aligned memory, arenas, and the failing allocator that tests switch on. */
#ifndef RPI_BASE_MEMORY_H
#define RPI_BASE_MEMORY_H

#include "redpoll/status.h"

#include <stddef.h>

enum { RPI_ALIGNMENT = 64 }; /* a cache line, and an AVX-512 register */

/* A larger count is a mistake, usually a negative number: it is beyond what can be addressed,
 * and small enough that bytes of all ranks can be counted. */
#define RPI_ELEMENTS_MAX ((size_t)1 << 44)

/* To the next address where memory of rpi_alloc() may begin. */
static inline size_t rpi_align_up(size_t bytes) {
    return (bytes + RPI_ALIGNMENT - 1) / RPI_ALIGNMENT * RPI_ALIGNMENT;
}

/* Zeroed memory aligned to RPI_ALIGNMENT; free with rpi_free (NULL is fine).
 * RP_NOMEM names `what` and the bytes asked for. bytes 0 gives a valid pointer. */
rp_status rpi_alloc(size_t bytes, const char *what, void *out_pointer) RP_MUST_USE;
rp_status rpi_alloc_array(size_t count, size_t element_bytes, const char *what,
                          void *out_pointer) RP_MUST_USE;
/* Grow to new_count elements, keeping the first old_count; the new ones are zero. On failure
 * *in_out is untouched. */
rp_status rpi_grow_array(size_t old_count, size_t new_count, size_t element_bytes,
                         const char *what, void *in_out_pointer) RP_MUST_USE;
rp_status rpi_strdup(const char *text, char **out_copy) RP_MUST_USE;
void rpi_free(void *pointer);

#ifdef __clang_analyzer__
/* A model that the static analyser understands: it then finds leaks and missing checks. */
#    include <stdlib.h>
#    define rpi_alloc(bytes, what, out)                                                        \
        ((*(out) = calloc(1, (bytes) + 1)) != NULL ? RP_OK : RP_NOMEM)
#    define rpi_alloc_array(count, element_bytes, what, out)                                   \
        ((*(out) = calloc((count) + 1, element_bytes)) != NULL ? RP_OK : RP_NOMEM)
#    define rpi_free free
#endif

/* Zeroed memory of whole pages, each of which costs memory only once it is touched: for buffers
 * of which most may never be used. rpi_free_pages() takes the same number of bytes; NULL is
 * fine. */
rp_status rpi_alloc_pages(size_t bytes, const char *what, void *out_pointer) RP_MUST_USE;
void rpi_free_pages(void *pointer, size_t bytes);

/* An arena hands out pieces of one growing block list and frees them all at once. */
typedef struct rpi_arena rpi_arena;
rp_status rpi_arena_create(size_t block_bytes, rpi_arena **out_arena);
rp_status rpi_arena_alloc(rpi_arena *arena, size_t bytes, void *out_pointer) RP_MUST_USE;
void rpi_arena_destroy(rpi_arena *arena);

/* Tests only: the n-th allocation from now on this thread fails (n = 1 is the next);
 * n = 0 switches it off. Returns how many allocations ran since the last call. */
long rpi_memory_fail_after(long n);

/* The most bytes that this process has held in memory; NaN: not known. */
double rpi_memory_most_held(void);

#endif
