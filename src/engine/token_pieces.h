/* Which tokens of a sequence a run has, where others have the rest of it. */
#ifndef RPI_ENGINE_TOKEN_PIECES_H
#define RPI_ENGINE_TOKEN_PIECES_H

#include <stdbool.h>
#include <stdint.h>

/* A sequence is cut into `count` pieces of equal length, and the run's tokens are two of them,
 * at[0] and behind it at[1], which comes later. count 0: they are the whole sequence. Where its
 * length does not divide, the pieces hold `whole` tokens, and behind the last one padding;
 * whole 0: they are full.
 *
 * Of these tokens, `own` of them, the run may have a part alone, from `first` on; what lies
 * behind the last one is padding. own 0: it has them all. */
typedef struct rpi_token_pieces {
    int64_t count, at[2], whole;
    int64_t first, own;
} rpi_token_pieces;

static inline bool rpi_token_is_cut(const rpi_token_pieces *pieces) {
    return pieces->count || pieces->own;
}

/* Is there padding behind the run's `length` tokens, or in their last piece? */
static inline bool rpi_token_is_padded(const rpi_token_pieces *pieces, int64_t length) {
    int64_t own = pieces->own ? pieces->own : length;
    bool is_short = pieces->whole && (pieces->at[1] + 1) * (own / 2) > pieces->whole;
    return is_short || pieces->first + length > own;
}

/* The place in the whole sequence of token `token` of the run's `length`, which has all. */
static inline int64_t rpi_token_place(const rpi_token_pieces *pieces, int64_t length,
                                      int64_t token) {
    int64_t half = length / 2;
    if (!pieces->count) return token;
    return token < half ? pieces->at[0] * half + token : pieces->at[1] * half + token - half;
}

/* Tokens of all pieces, of which the run has `length`, with their padding; and without it. */
static inline int64_t rpi_token_filled(const rpi_token_pieces *pieces, int64_t length) {
    if (pieces->own) length = pieces->own;
    return pieces->count ? length / 2 * pieces->count : length;
}
static inline int64_t rpi_token_whole(const rpi_token_pieces *pieces, int64_t length) {
    return pieces->whole ? pieces->whole : rpi_token_filled(pieces, length);
}

/* A run's tokens as runs of tokens that follow each other in the sequence: how many there are,
 * one or two, and what the index-th of them is. Padding is in none; some may have no token. */
typedef struct rpi_token_run {
    int64_t first, count; /* of the run's tokens */
    int64_t place;        /* of the first, in the sequence */
} rpi_token_run;
static inline int rpi_token_runs(const rpi_token_pieces *pieces) {
    return pieces->count ? 2 : 1;
}
static inline rpi_token_run rpi_token_run_at(const rpi_token_pieces *pieces, int64_t length,
                                             int index) {
    int64_t all = pieces->own ? pieces->own : length, count = all / rpi_token_runs(pieces);
    int64_t begin = index * count, from = begin, to = begin + count;
    int64_t place = pieces->count ? pieces->at[index] * count : 0;
    if (from < pieces->first) from = pieces->first;
    if (to > pieces->first + length) to = pieces->first + length;
    if (pieces->whole && to - begin > pieces->whole - place) to = begin + pieces->whole - place;
    if (to < from) to = from;
    return (rpi_token_run){from - pieces->first, to - from, place + from - begin};
}

#endif
