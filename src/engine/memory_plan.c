#include "engine/memory_plan.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdlib.h>

/* Has the place of `root` been taken over at this very step? */
static bool is_taken(const rpi_buffer *buffers, int count, int root, int step) {
    for (int i = 0; i < count; i++)
        if (buffers[i].shares == root && buffers[i].first == step) return true;
    return false;
}

/* Lifetimes of buffers that took over their input's place, joined to that of the first one. */
static void join_reused(rpi_buffer *buffers, int count, const rpi_reuse *reuses,
                        int reuse_count) {
    for (int i = 0; i < reuse_count; i++) {
        rpi_buffer *output = &buffers[reuses[i].output];
        int root = buffers[reuses[i].input].shares;
        bool fresh = output->shares == reuses[i].output && output->first == reuses[i].step &&
                     output->first <= output->last;
        if (!fresh || root == reuses[i].output || buffers[root].last != reuses[i].step ||
            buffers[root].bytes < output->bytes ||
            is_taken(buffers, count, root, reuses[i].step))
            continue;
        output->shares = root;
        buffers[root].last = output->last;
    }
}

/* A buffer to be placed, or placed: sorted by bytes, or by offset. */
typedef struct entry {
    size_t key;
    int index;
} entry;

static int larger_first(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? 1 : -1;
    return x->index - y->index; /* same place in every run */
}

static int lower_first(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->index - y->index;
}

/* The lowest gap between the `count` neighbours, sorted by offset, that holds `bytes`. */
static size_t lowest_gap(const rpi_buffer *buffers, const entry *neighbours, int count,
                         size_t bytes) {
    size_t end = 0;
    for (int i = 0; i < count; i++) {
        if (neighbours[i].key >= end + rpi_align_up(bytes)) return end;
        size_t next = neighbours[i].key + rpi_align_up(buffers[neighbours[i].index].bytes);
        if (next > end) end = next;
    }
    return end;
}

/* Those of the first `count` in order that are alive together with `buffer`, by offset. */
static int find_neighbours(const rpi_buffer *buffers, const rpi_buffer *buffer,
                           const entry *order, int count, entry *neighbours) {
    int alive = 0;
    for (int i = 0; i < count; i++) {
        const rpi_buffer *other = &buffers[order[i].index];
        if (other->first <= buffer->last && buffer->first <= other->last)
            neighbours[alive++] = (entry){other->offset, order[i].index};
    }
    qsort(neighbours, (size_t)alive, sizeof(entry), lower_first);
    return alive;
}

/* Large buffers first, each as low as those placed before and alive at the same time allow. */
static size_t place(rpi_buffer *buffers, entry *order, int count, entry *neighbours) {
    size_t total = 0;
    qsort(order, (size_t)count, sizeof(entry), larger_first);
    for (int i = 0; i < count; i++) {
        rpi_buffer *buffer = &buffers[order[i].index];
        int alive = find_neighbours(buffers, buffer, order, i, neighbours);
        buffer->offset = lowest_gap(buffers, neighbours, alive, buffer->bytes);
        size_t end = buffer->offset + rpi_align_up(buffer->bytes);
        if (end > total) total = end;
    }
    return total;
}

/* ---- arenas ---- */

static int pass_of(const rpi_pass_ends *ends, int step) {
    return step < ends->forward_end ? 0 : step < ends->inputs_end ? 1 : 2;
}

static rpi_arena_kind arena_of(const rpi_pass_ends *ends, const rpi_buffer *buffer) {
    if (!ends) return RPI_ARENA_RUN;
    int first = pass_of(ends, buffer->first), last = pass_of(ends, buffer->last);
    if (first == last) return RPI_ARENA_PASSING;
    if (first == 1) return RPI_ARENA_BETWEEN;
    return last == 1 ? RPI_ARENA_TO_INPUTS : RPI_ARENA_RUN;
}

/* Of those that did not take over a place, and are touched at all. */
static size_t place_arena(rpi_buffer *buffers, int count, rpi_arena_kind arena, entry *room) {
    int roots = 0;
    for (int i = 0; i < count; i++) {
        const rpi_buffer *buffer = &buffers[i];
        if (buffer->shares == i && buffer->first <= buffer->last && buffer->arena == arena)
            room[roots++] = (entry){buffer->bytes, i};
    }
    return place(buffers, room, roots, room + count);
}

rp_status rpi_memory_plan(rpi_buffer *buffers, int count, const rpi_reuse *reuses,
                          int reuse_count, const rpi_pass_ends *ends,
                          size_t out_bytes[RPI_ARENAS]) {
    entry *room = NULL;
    RP_TRY(rpi_alloc_array(2 * (size_t)count, sizeof *room, "a memory plan", &room));
    for (int i = 0; i < count; i++) buffers[i].shares = i;
    join_reused(buffers, count, reuses, reuse_count);
    for (int i = 0; i < count; i++)
        if (buffers[i].shares == i) buffers[i].arena = arena_of(ends, &buffers[i]);
    for (int a = 0; a < RPI_ARENAS; a++)
        out_bytes[a] = place_arena(buffers, count, (rpi_arena_kind)a, room);
    for (int i = 0; i < count; i++) {
        buffers[i].arena = buffers[buffers[i].shares].arena;
        buffers[i].offset = buffers[buffers[i].shares].offset;
    }
    rpi_free(room);
    return RP_OK;
}
