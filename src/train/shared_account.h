/* What each of the ranks that share a model's state (--zero) has of it, counted from a table of
 * weights without elements. */
#ifndef RPI_TRAIN_SHARED_ACCOUNT_H
#define RPI_TRAIN_SHARED_ACCOUNT_H

#include "train/models/network.h"

/* The default bucket size of `redpoll train`. */
enum { RPI_USUAL_BUCKET_BYTES = 4 << 20 };

typedef struct rpi_shared_account_options {
    const rpi_network *network; /* borrowed for the call, like the weights */
    rpi_weights *weights;
    int zero;    /* what they share: 1: the optimizer's state, 2: gradients, too, 3: all */
    int sharers; /* up to 1: each has all of it */
    int64_t bucket_bytes; /* 0: the usual ones */
    bool whole_tensors;   /* the optimizer updates whole tensors only */
    int host_ranks;       /* with zero 3: ranks that share a second copy; 0: none do */
} rpi_shared_account_options;

/* Elements, on the rank that owns most. */
typedef struct rpi_shared_account {
    int64_t owned; /* updated by it */
    /* the most in memory at a time: what it owns, and buckets in use or being sent */
    int64_t gradients, values;
} rpi_shared_account;

rp_status rpi_shared_account_make(const rpi_shared_account_options *options,
                                  rpi_shared_account *out_account);

#endif
