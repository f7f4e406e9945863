/* Sets of ranks: a bit each, so that a walk over the members of a large world costs by the
 * members and not by the world. */
#ifndef RPI_BASE_RANK_SET_H
#define RPI_BASE_RANK_SET_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct rpi_rank_set {
    int words;
    uint64_t *bits; /* [words]; NULL: of a world of none */
} rpi_rank_set;

static inline int rpi_rank_set_words(int world) {
    return (world + 63) / 64;
}

/* Empty, for ranks from 0 to world - 1. Zeros are fine to free, and again. */
rp_status rpi_rank_set_make(int world, rpi_rank_set *out_set);
void rpi_rank_set_free(rpi_rank_set *set);

static inline void rpi_rank_set_put(const rpi_rank_set *set, int rank) {
    set->bits[rank / 64] |= UINT64_C(1) << rank % 64;
}

static inline void rpi_rank_set_remove(const rpi_rank_set *set, int rank) {
    set->bits[rank / 64] &= ~(UINT64_C(1) << rank % 64);
}

/* The first member from `rank` on; -1: there is none. Members may come and go between two
 * calls:
 *
 *     for (int rank = rpi_rank_set_next(set, 0); rank >= 0;
 *          rank = rpi_rank_set_next(set, rank + 1)) */
static inline int rpi_rank_set_next(const rpi_rank_set *set, int rank) {
    for (int word = rank / 64; word < set->words; word++) {
        uint64_t bits = set->bits[word];
        if (word == rank / 64) bits &= ~UINT64_C(0) << rank % 64;
        if (bits) return 64 * word + __builtin_ctzll(bits);
    }
    return -1;
}

#endif
