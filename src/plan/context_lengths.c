#include "plan/context_lengths.h"

#include "base/append.h"

#include <stdio.h>

enum { PIECES = 2 }; /* a rank */

bool rpi_context_length_fits(int64_t ranks, int64_t sequence) {
    return ranks <= 1 || sequence % (PIECES * ranks) == 0;
}

/* "12 or 18 tokens would fit", none above `most`. */
static void say_lengths(int64_t pieces, int64_t sequence, int64_t most, char text[96]) {
    int64_t less = (sequence < most ? sequence : most) / pieces * pieces;
    int64_t more = (sequence / pieces + 1) * pieces;
    text[0] = '\0';
    if (less > 0) rpi_append(text, 96, "%lld%s", (long long)less, more <= most ? " or " : "");
    if (more <= most) rpi_append(text, 96, "%lld", (long long)more);
    rpi_append(text, 96, " tokens would fit");
}

/* Where the model is too short for any. */
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
        say_lengths(pieces, sequence, most, would);
    else
        say_ranks(pieces, positions, would);
    return RP_FAIL(INVALID,
                   "sequences of %lld tokens over %lld context ranks, two equal pieces each: "
                   "%s",
                   (long long)sequence, (long long)ranks, would);
}
