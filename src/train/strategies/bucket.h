/* Buckets: ranges of the gradient arena, each summed by one all-reduce.
 *
 * Borders lie between tensors, so that a bucket is a list of whole tensors, each with a codec
 * of its own. They depend on the parameter record and the bucket's size only. */
#ifndef RPI_TRAIN_BUCKET_H
#define RPI_TRAIN_BUCKET_H

#include "redpoll/comm.h"
#include "train/models/network.h"

typedef struct rpi_bucket {
    int64_t first, count;       /* elements of the arena */
    int segment, segment_count; /* in rpi_buckets.segments */
} rpi_bucket;

typedef struct rpi_buckets {
    rpi_bucket *buckets;
    int count;
    rp_segment *segments; /* one a parameter, in the order of the arena */
    int segment_count;
} rpi_buckets;

/* Cuts the arena: a bucket ends with the tensor that brings it to `bytes` or more. Segments of
 * tensors that are compressed get `codec` and their part of `residual` (NULL: none). */
rp_status rpi_buckets_create(const rpi_network *network, rpi_weights *weights, int64_t bytes,
                             const rp_codec *codec, float *residual, rpi_buckets *out_buckets);
/* The parameter with which the next bucket begins, if one begins with the first-th parameter of
 * the arena. */
int rpi_bucket_end(const rpi_weights *weights, int first, int64_t bytes);
/* The bucket that contains the index-th parameter of the arena. */
int rpi_buckets_find(const rpi_buckets *buckets, int parameter);
void rpi_buckets_destroy(rpi_buckets *buckets); /* zeros are fine */

#endif
