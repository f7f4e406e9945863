/* Memory of buckets that are on a rank for a while: gradients until their owners have the sums,
 * parameters while a layer computes. Ordinary buckets have places of one size, which are used
 * again and again; one larger than that (a table, say) has a place of its own, which it keeps:
 * taken and freed again and again, what lies between such would leave holes that fit none. */
#ifndef RPI_TRAIN_PASSING_MEMORY_H
#define RPI_TRAIN_PASSING_MEMORY_H

#include "train/strategies/bucket.h"

enum { RPI_PASSING_PLACES = 64 };

typedef struct rpi_passing_memory {
    const rpi_buckets *buckets;
    const rp_comm *comm; /* whose ranks read what lies here; NULL: this process alone */
    const char *what;
    int64_t usual;      /* elements of a place of one size */
    float **of_buckets; /* NULL: it lies nowhere */
    float **larger;     /* places of buckets that have one of their own, and lie nowhere */
    float *free[RPI_PASSING_PLACES];
    int free_count;
    int64_t elements, most; /* that buckets lie in, now and at most, since it was opened */
} rpi_passing_memory;

/* Borrows all. */
rp_status rpi_passing_memory_open(const rpi_buckets *buckets, const rp_comm *comm,
                                  const char *what, rpi_passing_memory *out);
void rpi_passing_memory_close(rpi_passing_memory *memory); /* zeros are fine */

/* A place for a bucket that has none. Elements mean nothing. */
rp_status rpi_passing_memory_take(rpi_passing_memory *memory, int bucket);
/* One that has none is fine. */
void rpi_passing_memory_give(rpi_passing_memory *memory, int bucket);

/* Elements that so many ordinary buckets take at most, and each that is larger. */
int64_t rpi_passing_memory_foresee(const rpi_buckets *buckets, int places);

#endif
