/* Which tokens of a sequence a run has, where others have the rest of it. */
#ifndef RPI_ENGINE_TOKEN_PIECES_H
#define RPI_ENGINE_TOKEN_PIECES_H

#include <stdint.h>

/* A sequence is cut into `count` pieces of equal length, and the run's tokens are two of them,
 * at[0] and behind it at[1], which comes later. count 0: they are the whole sequence. */
typedef struct rpi_token_pieces {
    int64_t count, at[2];
} rpi_token_pieces;

/* The place in the whole sequence of token `token` of the run's `length`. */
static inline int64_t rpi_token_place(const rpi_token_pieces *pieces, int64_t length,
                                      int64_t token) {
    int64_t half = length / 2;
    if (!pieces->count) return token;
    return token < half ? pieces->at[0] * half + token : pieces->at[1] * half + token - half;
}

/* Tokens of the whole sequence, of which the run has `length`. */
static inline int64_t rpi_token_whole(const rpi_token_pieces *pieces, int64_t length) {
    return pieces->count ? length / 2 * pieces->count : length;
}

/* A run's tokens as runs of tokens that follow each other in the sequence: how many there are,
 * one or two, and what the index-th of them is. */
typedef struct rpi_token_run {
    int64_t first, count; /* of the run's tokens */
    int64_t place;        /* of the first, in the sequence */
} rpi_token_run;
static inline int rpi_token_runs(const rpi_token_pieces *pieces) {
    return pieces->count ? 2 : 1;
}
static inline rpi_token_run rpi_token_run_at(const rpi_token_pieces *pieces, int64_t length,
                                             int index) {
    int64_t count = length / rpi_token_runs(pieces);
    return (rpi_token_run){.first = index * count,
                           .count = count,
                           .place = pieces->count ? pieces->at[index] * count : 0};
}

#endif
