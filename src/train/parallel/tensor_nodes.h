/* The nodes at which the ranks of a tensor group communicate (train/models/tensor_split.h),
 * over a communicator of their own, whose operations have priority over all others:
 *
 *     split    forward: its input, as it lies; backward: all-reduce, a sum
 *     join     forward: all-reduce, a sum; backward: the gradient, as it lies
 *     gather   forward: all-gather; backward: this rank's part of the gradient
 *
 * and where ranks share the tokens between the layers
 *
 *     split    forward: all-gather; backward: reduce-scatter, a sum
 *     join     forward: reduce-scatter, a sum; backward: all-gather
 *
 * What a split has gathered is not kept for the backward pass, which gathers it again.
 *
 * A sum starts when its input is there and ends before its first use. The sum of a split
 * layer's input gradient therefore runs while the layer's weight gradient is computed. All
 * ranks of the group run the same programs in the same order. Sums are in rank order, with the
 * same bits on all ranks.
 *
 *     rpi_tensor_nodes_create(group, &options, &nodes)      all ranks of the group
 *     rpi_tensor_split split = rpi_tensor_nodes_split(nodes)
 *     rpi_network_build_split(model, shape, loss, &split, &network)
 *     ... programs and instances as of any network ...
 *     rpi_tensor_nodes_destroy(nodes)                       after the graph */
#ifndef RPI_TRAIN_TENSOR_NODES_H
#define RPI_TRAIN_TENSOR_NODES_H

#include "train/models/tensor_split.h"
#include "train/parallel/tensor_node.h"

typedef struct rpi_tensor_nodes rpi_tensor_nodes;

typedef struct rpi_tensor_nodes_options {
    rpi_activation_codec *codec; /* the codec; borrowed; NULL: exact */
    rp_codec plain;              /* the codec where `codec` is exact; zeros: exact, too */
    const char *name;            /* the communicator's; NULL: "tensor" */
    bool repeats_sums;           /* rpi_tensor_split.repeats */
    bool cuts_tokens;            /* rpi_tensor_split.tokens */
    /* Optional: called when the computing thread has waited in a node. */
    void (*waited)(void *context, int64_t start_ns, int64_t end_ns);
    void *context;
} rpi_tensor_nodes_options;

/* Collective over `group`, whose ranks are the tensor ranks in their order. The nodes borrow
 * the group, which must outlive them. options NULL: defaults. Fails as rp_comm_group() does. */
rp_status rpi_tensor_nodes_create(rp_comm *group, const rpi_tensor_nodes_options *options,
                                  rpi_tensor_nodes **out_nodes);
void rpi_tensor_nodes_destroy(rpi_tensor_nodes *nodes); /* NULL is fine */

/* What a network is built with; it borrows the nodes. */
rpi_tensor_split rpi_tensor_nodes_split(rpi_tensor_nodes *nodes);

/* What the nodes have sent and received since they were made. */
rpi_tensor_traffic rpi_tensor_nodes_traffic(const rpi_tensor_nodes *nodes);

/* The nodes' communicator, to abort it or to read its statistics. */
rp_comm *rpi_tensor_nodes_comm(const rpi_tensor_nodes *nodes);

#endif
