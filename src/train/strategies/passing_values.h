/* Parameters of ranks that have only what they own. The parameters of a bucket are gathered
 * into temporary memory before they are used, and freed after it.
 *
 *     forward, layer 0    bucket 9 is there         bucket 8 is gathered
 *     layer 1             bucket 8 is there         bucket 7 is gathered, 9's memory is free
 *
 * The order follows from the program that is about to run. Ranks run the same programs,
 * whatever their samples, and so gather in one order. The backward pass gathers again, except
 * the buckets with which it begins, which the forward pass leaves there. If the ranks of a host
 * keep a copy together, a bucket that was gathered once is gathered from that copy until it is
 * updated (host_shards.h). */
#ifndef RPI_TRAIN_PASSING_VALUES_H
#define RPI_TRAIN_PASSING_VALUES_H

#include "train/strategies/host_shards.h"
#include "train/strategies/passing_memory.h"
#include "train/strategies/sharded.h"

/* Buckets that are gathered while one is in use. */
enum { RPI_PASSING_AHEAD = 2 };

typedef struct rpi_passing_values {
    rpi_passing_memory memory;
    rpi_sharded *sharded;
    rpi_host_shards hosts; /* zeros: hosts keep no copy */
    rpi_weights *weights;  /* NULL: values lie in an arena, and this is not used */
    rp_request **requests; /* one a bucket */
    /* Of the current pass: the buckets in the order in which it first needs one of their
     * parameters; the place of each in that order (-1: it is not needed); and the number of its
     * parameters that are still needed. */
    int *order, *places, *left;
    int order_count, next; /* next: the first of the order whose gather has not been posted */
    bool *stays;           /* a bucket is left for the backward pass that follows */
    bool is_forward;       /* the current pass is a forward pass before a backward pass */
    rp_collective_options options;
} rpi_passing_values;

/* Zeros if the setup's weights have an arena of values. Buckets and `sharded` are borrowed. */
rp_status rpi_passing_values_open(const rpi_strategy_setup *setup, const rpi_buckets *buckets,
                                  rpi_sharded *sharded, rpi_passing_values *out);
void rpi_passing_values_close(rpi_passing_values *values); /* zeros are fine; waits */

static inline bool rpi_passing_values_is_open(const rpi_passing_values *values) {
    return values->weights != NULL;
}

/* Begins a pass of this program, after ending the pass before. */
rp_status rpi_passing_values_begin(rpi_passing_values *values, const rpi_program *program,
                                   rpi_pass pass, const rp_collective_options *options);
rp_status rpi_passing_values_need(rpi_passing_values *values, int parameter);
void rpi_passing_values_done(rpi_passing_values *values, int parameter);
/* A bucket has been updated, and no gather of it is under way. */
void rpi_passing_values_stepped(rpi_passing_values *values, int bucket);
/* Ends the current pass: takes part in the gathers that other ranks still need. Afterwards no
 * bucket has memory. */
rp_status rpi_passing_values_end(rpi_passing_values *values);
/* Gathers all buckets into the weights' arena of values, which must be open. Collective. */
rp_status rpi_passing_values_gather_all(rpi_passing_values *values,
                                        const rp_collective_options *options);

#endif
