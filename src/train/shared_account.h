/* What ranks that share a model's state (--zero) have of it, each: counted from a table of
 * weights without elements. */
#ifndef RPI_TRAIN_SHARED_ACCOUNT_H
#define RPI_TRAIN_SHARED_ACCOUNT_H

#include "train/models/network.h"

/* As `redpoll train` cuts buckets by default. */
enum { RPI_USUAL_BUCKET_BYTES = 4 << 20 };

typedef struct rpi_shared_account_options {
    const rpi_network *network; /* borrowed for the call, as the weights */
    rpi_weights *weights;
    int zero;             /* 1: they share the optimizer's state, 2: gradients, 3: all */
    int sharers;          /* up to 1: each has all of it */
    int64_t bucket_bytes; /* 0: the usual ones */
    bool whole_tensors;   /* of which the optimizer steps no part */
    int host_ranks;       /* by 3, that keep a second copy among them; 0: none do */
} rpi_shared_account_options;

/* Elements, of the rank that owns most. */
typedef struct rpi_shared_account {
    int64_t owned;             /* what it steps */
    int64_t gradients, values; /* in memory at a time, at most: of what it owns, and of buckets
                                  that are in use and that travel */
} rpi_shared_account;

rp_status rpi_shared_account_make(const rpi_shared_account_options *options,
                                  rpi_shared_account *out_account);

#endif
