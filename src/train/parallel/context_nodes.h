/* The nodes at which the ranks of a context group gather keys and values
 * (train/models/context_split.h), over a communicator of their own, whose operations have
 * priority over all others:
 *
 *     forward     all-gather, and again where backward reads what it gave
 *     backward    reduce-scatter, a sum in rank order
 *
 * All ranks of the group run the same programs in the same order.
 *
 *     rpi_context_nodes_create(group, NULL, &nodes)         all ranks of the group
 *     rpi_tensor_split split = {.context = rpi_context_nodes_split(nodes)}
 *     rpi_network_build_split(model, shape, loss, &split, &network)
 *     ... programs and instances as of any network ...
 *     rpi_context_nodes_destroy(nodes)                      after the graph */
#ifndef RPI_TRAIN_CONTEXT_NODES_H
#define RPI_TRAIN_CONTEXT_NODES_H

#include "redpoll/comm.h"
#include "train/models/context_split.h"

typedef struct rpi_context_nodes rpi_context_nodes;

/* Collective over `group`, whose ranks are the context ranks in their order. The nodes borrow
 * the group, which must outlive them. name: of the nodes' communicator; NULL: "context". Fails
 * as rp_comm_group() does. */
rp_status rpi_context_nodes_create(rp_comm *group, const char *name,
                                   rpi_context_nodes **out_nodes);
void rpi_context_nodes_destroy(rpi_context_nodes *nodes); /* NULL is fine */

/* What a network is built with; it borrows the nodes. */
rpi_context_split rpi_context_nodes_split(rpi_context_nodes *nodes);

/* What the nodes have sent and received since they were made. */
typedef struct rpi_context_traffic {
    int64_t gathers, scatters; /* finished operations */
    int64_t gathered_bytes;    /* keys and values of all ranks */
    int64_t scattered_bytes;   /* gradients of them, of all tokens */
    int64_t wait_ns;           /* the time for which the computing thread waited */
} rpi_context_traffic;
rpi_context_traffic rpi_context_nodes_traffic(const rpi_context_nodes *nodes);
/* Calls `waited` from now on each time that the computing thread has waited in a node. */
void rpi_context_nodes_hear(rpi_context_nodes *nodes,
                            void (*waited)(void *context, int64_t start_ns, int64_t end_ns),
                            void *context);

/* Bytes that the nodes hold beside the memory of a run: the buffer of the largest node, for so
 * many samples of whole sequences. keys: the node's. */
static inline double rpi_context_nodes_bytes(double samples, double sequence, double keys) {
    return 2 * samples * sequence * keys * (double)sizeof(float);
}

/* The nodes' communicator, to abort it or to read its statistics. */
rp_comm *rpi_context_nodes_comm(const rpi_context_nodes *nodes);

#endif
