/* Gradients of which each of several tensor ranks has made a part: of key heads that there are
 * fewer of than ranks, of norms that all heads share (rpi_parameter.adds). After the backward
 * pass of a step, or its last run, they are summed over the ranks that hold the same elements;
 * then each has the whole gradient. All other gradients are whole as they come. */
#ifndef RPI_TRAIN_TENSOR_SUMS_H
#define RPI_TRAIN_TENSOR_SUMS_H

#include "engine/backends/cpu/kernels/kernel_square_sum.h"
#include "engine/weights.h"
#include "redpoll/comm.h"
#include "train/models/network.h"

typedef struct rpi_tensor_sums rpi_tensor_sums;

/* Collective over `group`, the tensor ranks in their order, borrowed as network and weights
 * are. */
rp_status rpi_tensor_sums_create(rp_comm *group, const rpi_network *network,
                                 rpi_weights *weights, rpi_tensor_sums **out_sums);
void rpi_tensor_sums_destroy(rpi_tensor_sums *sums); /* NULL is fine */

/* Elements of this rank that are summed. */
int64_t rpi_tensor_sums_count(const rpi_tensor_sums *sums);

/* Collective; blocks. Once for what each backward pass, or the last of several that accumulate,
 * has left: what is summed twice is too much. */
rp_status rpi_tensor_sums_run(rpi_tensor_sums *sums);
/* The same of gradients in [first, first + count) of the arena alone, as they are final. Ranks
 * tell their ranges in the order of the arena, and cut them as they like between tensors. */
rp_status rpi_tensor_sums_final(rpi_tensor_sums *sums, int64_t first, int64_t count);

/* The squares of all gradients, each element of the model once, whoever has it and however many
 * do: the same to the last bit as of one rank that holds the whole model and has the same
 * gradients. Collective over `group`, the tensor ranks; blocks. */
rp_status rpi_tensor_square_sum(rp_comm *group, const rpi_network *network,
                                const rpi_weights *weights, rpi_square_sum *out_sum);

#endif
