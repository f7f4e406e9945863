/* Cuts from a batch the tokens of one context rank (train/models/context_split.h). */
#ifndef RPI_TRAIN_CONTEXT_BATCH_H
#define RPI_TRAIN_CONTEXT_BATCH_H

#include "engine/token_pieces.h"
#include "train/data/source.h"

/* Memory for the cut inputs, which grows to the largest batch; begins as zeros. */
typedef struct rpi_context_batch {
    void *inputs[RPI_TASK_INPUTS];
    size_t room[RPI_TASK_INPUTS];
} rpi_context_batch;

/* Replaces inputs of tokens by this rank's pieces of them, until the next call. Inputs that
 * every rank has as a whole stay. If a length does not divide, both pieces are padded
 * (rpi_task_input.fill). Keeps of the labels those that count in the pieces; labels of samples
 * are counted only by the rank with the first piece. shape is that of the whole batch.
 * RP_NOMEM. */
rp_status rpi_context_batch_cut(rpi_context_batch *memory, const rpi_task *task,
                                const rpi_data_shape *shape, const rpi_token_pieces *pieces,
                                rpi_source_batch *batch);
void rpi_context_batch_close(rpi_context_batch *memory);

#endif
