/* Lists of segments with owners, as reduce-scatter and all-gather take them, and what each rank
 * must get of them: computed by one thread, with the public codecs. */
#ifndef COMM_OWNED_LIST_H
#define COMM_OWNED_LIST_H

#include "redpoll/comm.h"

#include <stdbool.h>

enum { OWNED_SEGMENTS = 12, OWNED_RANKS = 8, OWNED_ELEMENTS = 24000 };

typedef struct owned_row {
    size_t count;
    rp_dtype dtype;
    const char *codec;
    int owner;      /* modulo the world */
    uint64_t first; /* of the tensor */
} owned_row;

typedef struct owned_list {
    const char *name;
    owned_row rows[OWNED_SEGMENTS];
    size_t count;
} owned_list;

/* Whoever adds a kind of list adds it here. */
extern const owned_list owned_lists[];
extern const int owned_list_count;

/* What one rank has of a list; in memory of exactly the size that is needed. */
typedef struct owned_memory {
    rp_owned_segment segments[OWNED_SEGMENTS];
    void *data[OWNED_SEGMENTS], *own[OWNED_SEGMENTS];
    float *residuals[OWNED_SEGMENTS];
} owned_memory;

bool owned_list_takes(const owned_list *list, rp_reduction reduction);
/* data: this rank's input; own: of its own segments, unless in_place, the same elements. With
 * feedback, residuals of its own (zeros) for codecs that take them. */
void owned_take(const owned_list *list, int rank, int world, bool in_place, bool feedback,
                owned_memory *out);
void owned_give(const owned_list *list, owned_memory *memory);
/* A rank's input of a segment: Gaussian where a codec may be lossy. */
void owned_fill(const owned_list *list, int index, int rank, void *data);
/* What the owner of a segment must get: added in rank order, all but its own contribution
 * through the codec. */
void owned_reduced(const owned_list *list, int index, int world, rp_reduction reduction,
                   const rp_collective_options *options, void *out);
/* What all must get of it, and what the owner's residual holds then (NULL: not asked). */
void owned_gathered(const owned_list *list, int index, int world,
                    const rp_collective_options *options, void *out, float *residual);

#endif
