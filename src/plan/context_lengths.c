#include "plan/context_lengths.h"

#include "base/append.h"

#include <stdio.h>

enum { PIECES = 2 }; /* a rank */

bool rpi_context_length_fits(int64_t ranks, int64_t sequence) {
    return ranks <= 1 || sequence >= PIECES * ranks;
}

bool rpi_context_length_divides(int64_t ranks, int64_t sequence) {
    return ranks <= 1 || sequence % (PIECES * ranks) == 0;
}

int64_t rpi_context_length_own(int64_t ranks, int64_t sequence) {
    if (ranks <= 1) return sequence;
    int64_t pieces = PIECES * ranks;
    return (sequence + pieces - 1) / pieces * PIECES;
}

/* "8 tokens would fit, or --cp 3" */
static void say_length(int64_t pieces, int64_t sequence, char text[96]) {
    text[0] = '\0';
    rpi_append(text, 96, "%lld tokens would fit", (long long)pieces);
    if (sequence / PIECES > 1)
        rpi_append(text, 96, ", or --cp %lld", (long long)(sequence / PIECES));
}

/* For a model that is too short for any such sequence. */
static void say_ranks(int64_t pieces, int64_t positions, char text[96]) {
    long long ranks = positions / PIECES;
    text[0] = '\0';
    if (ranks > 1)
        rpi_append(text, 96, "--cp %lld with --seq-length %lld, or ", ranks, PIECES * ranks);
    rpi_append(text, 96, "positions=%lld with --seq-length %lld would fit", (long long)pieces,
               (long long)pieces);
}

rp_status rpi_context_lengths_check(int64_t ranks, int64_t sequence, int64_t positions) {
    int64_t pieces = PIECES * ranks, most = positions > 0 ? positions : INT64_MAX;
    char would[96];
    if (rpi_context_length_fits(ranks, sequence)) return RP_OK;
    if (pieces <= most)
        say_length(pieces, sequence, would);
    else
        say_ranks(pieces, positions, would);
    return RP_FAIL(INVALID,
                   "sequences of %lld tokens over %lld context ranks, two pieces each: "
                   "%s",
                   (long long)sequence, (long long)ranks, would);
}
