/* Memory of buckets that are on a rank for a while: gradients until their owners have the sums,
 * parameters while a layer computes. Ordinary buckets have places of one size, which are used
 * repeatedly. A larger bucket, such as a table, has a place of its own, which it keeps: if such
 * places were allocated and freed repeatedly, the allocations between them would leave holes
 * into which none of them fits. */
#ifndef RPI_TRAIN_PASSING_MEMORY_H
#define RPI_TRAIN_PASSING_MEMORY_H

#include "train/strategies/bucket.h"

enum { RPI_PASSING_PLACES = 64 };

typedef struct rpi_passing_memory {
    const rpi_buckets *buckets;
    const rp_comm *comm; /* its ranks may read this memory; NULL: only this process does */
    const char *what;
    int64_t usual;      /* elements of an ordinary place */
    float **of_buckets; /* NULL: the bucket has no memory now */
    float **larger;     /* places of larger buckets that are not in use */
    float *free[RPI_PASSING_PLACES];
    int free_count;
    int64_t elements, most; /* in use now, and the most since it was opened */
} rpi_passing_memory;

/* Borrows all arguments. */
rp_status rpi_passing_memory_open(const rpi_buckets *buckets, const rp_comm *comm,
                                  const char *what, rpi_passing_memory *out);
void rpi_passing_memory_close(rpi_passing_memory *memory); /* zeros are fine */

/* Gives a place to a bucket that has none. Its elements are undefined. */
rp_status rpi_passing_memory_take(rpi_passing_memory *memory, int bucket);
/* Takes the place of a bucket back; does nothing if it has none. */
void rpi_passing_memory_give(rpi_passing_memory *memory, int bucket);

/* The most elements that so many ordinary buckets need, with every larger bucket. */
int64_t rpi_passing_memory_foresee(const rpi_buckets *buckets, int places);

#endif
