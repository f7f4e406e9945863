/* Gradients that several tensor ranks have computed in parts: of key heads, if there are fewer
 * of them than ranks, and of norms that all heads share (rpi_parameter.adds). After the
 * backward pass of a step, or after its last run, they are summed over the ranks that hold the
 * same elements, so that each of them has the whole gradient. All other gradients are complete
 * without a sum. */
#ifndef RPI_TRAIN_TENSOR_SUMS_H
#define RPI_TRAIN_TENSOR_SUMS_H

#include "engine/backends/cpu/kernels/kernel_square_sum.h"
#include "engine/weights.h"
#include "redpoll/comm.h"
#include "train/models/network.h"

typedef struct rpi_tensor_sums rpi_tensor_sums;

/* Collective over `group`, which has the tensor ranks in their order. Borrows group, network
 * and weights. */
rp_status rpi_tensor_sums_create(rp_comm *group, const rpi_network *network,
                                 rpi_weights *weights, rpi_tensor_sums **out_sums);
void rpi_tensor_sums_destroy(rpi_tensor_sums *sums); /* NULL is fine */

/* The number of this rank's elements that are summed. */
int64_t rpi_tensor_sums_count(const rpi_tensor_sums *sums);

/* Collective; blocks. Call it once after each backward pass, or after the last of several that
 * accumulate: a second call would add the same gradients again. */
rp_status rpi_tensor_sums_run(rpi_tensor_sums *sums);
/* The same for gradients in [first, first + count) of the arena, when they are final. Ranks
 * pass ranges in the order of the arena, and may cut them anywhere between tensors. */
rp_status rpi_tensor_sums_final(rpi_tensor_sums *sums, int64_t first, int64_t count);

/* The sum of the squares of all gradients, with each element of the model once, however many
 * ranks hold it. Equals to the last bit the sum of one rank that holds the whole model with the
 * same gradients. Collective over `group`, the tensor ranks; blocks. */
rp_status rpi_tensor_square_sum(rp_comm *group, const rpi_network *network,
                                const rpi_weights *weights, rpi_square_sum *out_sum);

#endif
