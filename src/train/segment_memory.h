/* What a model with a memory keeps from segment to segment: the last tokens of each layer's
 * input, for every row of a batch. The caller of the model owns the memories, as it owns
 * caches. A program reads one half and gives the activations from which the other half is made,
 * so that a run that is repeated sees the same. No gradient passes through them. */
#ifndef RPI_TRAIN_SEGMENT_MEMORY_H
#define RPI_TRAIN_SEGMENT_MEMORY_H

#include "engine/instance.h"
#include "train/models/network.h"

typedef struct rpi_memories {
    const rpi_network *network; /* NULL: there is no memory, and every function does nothing */
    int64_t rows, length;       /* rows of a batch, tokens of a row */
    int32_t remembered; /* the number of valid tokens at the end, the same in all rows */
    int64_t taken;      /* tokens of a row in the current run */
    /* For each layer, rows x length x width: what the runs of a step read, and what they leave
     * for the runs of the next step. */
    float *now[RPI_MEMORIES], *next[RPI_MEMORIES];
} rpi_memories;

/* Zeros for a network without memory. Borrows the network. */
rp_status rpi_memories_open(const rpi_network *network, int64_t rows,
                            rpi_memories *out_memories);
void rpi_memories_close(rpi_memories *memories); /* zeros are fine */

/* Rows begin again, without memories. */
void rpi_memories_close_after_fork(rpi_memories *memories);

/* Puts into the graph's inputs what a run of the rows from `first` on reads. inputs: all inputs
 * of the graph. */
void rpi_memories_inputs(const rpi_memories *memories, int64_t first, const void **inputs);
/* After that run, of `count` rows: keeps what it leaves. */
rp_status rpi_memories_take(rpi_memories *memories, const rpi_instance *instance, int64_t first,
                            int64_t count);
/* After all runs of a step: the next step goes on from here. */
void rpi_memories_turn(rpi_memories *memories);

/* Elements of one layer, and its width. */
int64_t rpi_memories_width(const rpi_memories *memories, int layer);

#endif
