/* The largest power of two of ranks, for algorithms that go by doubling distances. The first
 * ranks of other worlds go in pairs (0, 1), (2, 3), ...: the even one is a member for both. */
#ifndef RPI_PLAN_POWERS_H
#define RPI_PLAN_POWERS_H

#include <stdbool.h>

typedef struct rpi_powers {
    int members; /* a power of two */
    int pairs;
    int member; /* of this rank; -1: the odd one of a pair */
    bool pair;  /* it stands for rank + 1, too */
} rpi_powers;

static inline rpi_powers rpi_powers_of(int world, int rank) {
    int members = 1;
    while (2 * members <= world) members *= 2;
    int pairs = world - members;
    bool paired = rank < 2 * pairs;
    return (rpi_powers){.members = members,
                        .pairs = pairs,
                        .member = !paired    ? rank - pairs
                                  : rank % 2 ? -1
                                             : rank / 2,
                        .pair = paired && rank % 2 == 0};
}

static inline int rpi_powers_rank(const rpi_powers *powers, int member) {
    return member < powers->pairs ? 2 * member : member + powers->pairs;
}

#endif
