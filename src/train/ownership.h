/* Who owns what, where the ranks of a world share the state of the optimizer: parts of each
 * bucket of gradients, so that all ranks have their share to sum, to step and to send as soon
 * as any bucket is there.
 *
 * Parts lie within tensors and together are the arena. They follow from the parameter record,
 * the size of buckets and the number of ranks alone, so that all ranks know all of them. */
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

/* Elements of a cache line, at which tensors are cut that no codec cuts otherwise. */
enum { RPI_OWNED_LINE = 64 / sizeof(float) };

typedef struct rpi_ownership_options {
    const rpi_weights *weights; /* for the call */
    int ranks;
    int64_t bucket_bytes; /* as gradients travel (strategies/bucket.h) */
    int64_t granule;      /* tensors are cut at multiples of it, at least 1 */
    bool whole_tensors;   /* nothing is cut: the largest first, each to who has least */
    /* Of each parameter that others hold in an arena of their own, too, its number among those,
     * from 1 on, and 0 of others: it is cut by itself, the same there as here. NULL: none. */
    const int *ties;
} rpi_ownership_options;

/* Of a cut at which the codecs of gradients, of all levels that may be chosen, and of
 * parameters (NULL: exact) may begin. */
int64_t rpi_ownership_granule(const rp_adaptive_codec *gradients, const rp_codec *parameters);

rp_status rpi_ownership_cut(const rpi_ownership_options *options, rpi_ownership *out_ownership);
void rpi_ownership_close(rpi_ownership *ownership); /* zeros are fine */

/* What a rank owns as ranges in the order of the arena, as long as they can be: allocated, the
 * caller's to free with rpi_free(). */
rp_status rpi_ownership_ranges(const rpi_ownership *ownership, int rank,
                               rpi_arena_range **out_ranges, int *out_count);
/* Which parts a range of the arena has whose ends are ends of tensors: how many from
 * *out_first on. */
int rpi_ownership_find(const rpi_ownership *ownership, int64_t first, int64_t count,
                       int *out_first);
/* Elements that a rank owns. */
int64_t rpi_ownership_elements(const rpi_ownership *ownership, int rank);

#endif
