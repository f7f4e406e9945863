/* Which rank owns what if the ranks of a world share the state of the optimizer. Each owns a
 * part of each bucket of gradients, so that all ranks can sum, update and send their share as
 * soon as a bucket is there.
 *
 * A part lies within a tensor; all parts together are the arena. They depend on the parameter
 * record, the size of buckets and the number of ranks only, so that each rank knows all of
 * them. */
#ifndef RPI_TRAIN_OWNERSHIP_H
#define RPI_TRAIN_OWNERSHIP_H

#include "redpoll/adaptive.h"
#include "train/optimizer_state.h"

typedef struct rpi_owned_part {
    int parameter;         /* in the order of the arena */
    rpi_arena_range range; /* of its elements, in the arena */
    int owner;
} rpi_owned_part;

typedef struct rpi_ownership {
    rpi_owned_part *parts; /* in the order of the arena */
    int count;             /* 0: every rank owns everything */
} rpi_ownership;

/* Elements of a cache line, at which tensors are cut if no codec demands another granule. */
enum { RPI_OWNED_LINE = 64 / sizeof(float) };

typedef struct rpi_ownership_options {
    const rpi_weights *weights; /* for the call */
    int ranks;
    int64_t bucket_bytes; /* the size of gradients' buckets (strategies/bucket.h) */
    int64_t granule;      /* tensors are cut at multiples of it; at least 1 */
    /* no tensor is cut: the largest first, each to the rank with the least */
    bool whole_tensors;
    /* For each parameter that other ranks hold in an arena of their own, too, its number among
     * these, from 1 on; 0 for others. Such a parameter is cut by itself, in the same way on
     * both sides. NULL: there are none. */
    const int *ties;
} rpi_ownership_options;

/* The granule at which the codecs of gradients, with all levels that may be chosen, and of
 * parameters (NULL: exact) can begin. */
int64_t rpi_ownership_granule(const rp_adaptive_codec *gradients, const rp_codec *parameters);

rp_status rpi_ownership_cut(const rpi_ownership_options *options, rpi_ownership *out_ownership);
void rpi_ownership_close(rpi_ownership *ownership); /* zeros are fine */

/* What a rank owns, as ranges in the order of the arena that are as long as possible.
 * Allocated; the caller frees them with rpi_free(). */
rp_status rpi_ownership_ranges(const rpi_ownership *ownership, int rank,
                               rpi_arena_range **out_ranges, int *out_count);
/* The parts in a range of the arena that begins and ends with tensors: their number, from
 * *out_first on. */
int rpi_ownership_find(const rpi_ownership *ownership, int64_t first, int64_t count,
                       int *out_first);
/* Elements that a rank owns. */
int64_t rpi_ownership_elements(const rpi_ownership *ownership, int rank);

#endif
