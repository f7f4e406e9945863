/* How ranks share things evenly, in order. */
#ifndef RPI_TRAIN_SHARE_H
#define RPI_TRAIN_SHARE_H

#include <stdint.h>

/* First of `count` things that belong to `rank` of `world`; rank == world gives count. */
static inline int64_t rpi_share_first(int64_t count, int rank, int world) {
    int64_t each = count / world, more = count % world;
    return each * rank + (rank < more ? rank : more);
}

#endif
