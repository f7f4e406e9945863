/* Parameters of ranks that have what they own alone: those of a bucket are gathered into
 * passing memory ahead of use, and gone behind it.
 *
 *     forward, layer 0    bucket 9 is there         bucket 8 travels
 *     layer 1             bucket 8 is there         bucket 7 travels, 9's memory is free
 *
 * In which order is told before each pass by the program that runs; ranks run alike programs,
 * whatever their samples, and so gather in one order. Backward gathers again, but for the
 * buckets that it begins with, which forward leaves there. Where ranks of a host keep a copy
 * among them, what was gathered once is gathered there until it is stepped (host_shards.h). */
#ifndef RPI_TRAIN_PASSING_VALUES_H
#define RPI_TRAIN_PASSING_VALUES_H

#include "train/strategies/host_shards.h"
#include "train/strategies/passing_memory.h"
#include "train/strategies/sharded.h"

/* Buckets that travel while one is in use. */
enum { RPI_PASSING_AHEAD = 2 };

typedef struct rpi_passing_values {
    rpi_passing_memory memory;
    rpi_sharded *sharded;
    rpi_host_shards hosts; /* zeros: hosts keep nothing */
    rpi_weights *weights;  /* NULL: values lie in an arena, and nothing passes */
    rp_request **requests; /* one a bucket */
    /* Of the pass at hand: buckets in the order in which it first needs one of their
     * parameters, the place of each there (-1: it does not), and how many of its parameters are
     * not done with. */
    int *order, *places, *left;
    int order_count, next; /* next: the first of the order that has not been posted */
    bool *stays;           /* a bucket is left for a backward pass that follows, */
    bool is_forward;       /* behind a forward pass that is at hand */
    rp_collective_options options;
} rpi_passing_values;

/* Zeros, where the setup's weights have an arena of values. Buckets and `sharded` are borrowed.
 */
rp_status rpi_passing_values_open(const rpi_strategy_setup *setup, const rpi_buckets *buckets,
                                  rpi_sharded *sharded, rpi_passing_values *out);
void rpi_passing_values_close(rpi_passing_values *values); /* zeros are fine; waits */

static inline bool rpi_passing_values_is_open(const rpi_passing_values *values) {
    return values->weights != NULL;
}

/* A pass of this program begins: what is left of the one before ends. */
rp_status rpi_passing_values_begin(rpi_passing_values *values, const rpi_program *program,
                                   rpi_pass pass, const rp_collective_options *options);
rp_status rpi_passing_values_need(rpi_passing_values *values, int parameter);
void rpi_passing_values_done(rpi_passing_values *values, int parameter);
/* A bucket was stepped, and nothing gathers it. */
void rpi_passing_values_stepped(rpi_passing_values *values, int bucket);
/* All that the pass at hand still gathers, for whoever has not needed it; nothing lies. */
rp_status rpi_passing_values_end(rpi_passing_values *values);
/* All buckets to where the weights' arena of values is, which is open. Collective. */
rp_status rpi_passing_values_gather_all(rpi_passing_values *values,
                                        const rp_collective_options *options);

#endif
