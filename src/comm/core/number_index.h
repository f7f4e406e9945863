/* What belongs to an operation, by its number and a rank: found without a search of all. */
#ifndef RPI_COMM_NUMBER_INDEX_H
#define RPI_COMM_NUMBER_INDEX_H

#include "redpoll/status.h"

#include <stddef.h>
#include <stdint.h>

enum { RPI_ALL_RANKS = -1 }; /* instead of a rank, for what belongs to no single rank */

typedef struct rpi_index_slot {
    uint64_t sequence;
    int32_t rank;
    void *value; /* NULL: a free slot */
} rpi_index_slot;

/* Zeros are an empty table. It shrinks again when it has emptied. */
typedef struct rpi_index {
    rpi_index_slot *slots;
    size_t room, count;
} rpi_index;

/* NULL: there is none. */
void *rpi_index_find(const rpi_index *index, uint64_t sequence, int rank);
/* The key must be new, and value not NULL. */
rp_status rpi_index_put(rpi_index *index, uint64_t sequence, int rank, void *value);
void rpi_index_remove(rpi_index *index, uint64_t sequence, int rank); /* absent is fine */
void rpi_index_free(rpi_index *index);

#endif
