/* One node at which the ranks of a tensor group communicate, and what all nodes of a group
 * share. Used by tensor_nodes.c and tensor_tokens.c. */
#ifndef RPI_TRAIN_TENSOR_NODE_H
#define RPI_TRAIN_TENSOR_NODE_H

#include "redpoll/comm.h"
#include "train/parallel/activation_codec.h"

/* What the nodes have sent and received since they were made. */
typedef struct rpi_tensor_traffic {
    int64_t sums, gathers;  /* finished operations */
    int64_t summed_bytes;   /* this rank's values, before encoding */
    int64_t gathered_bytes; /* the values of all ranks */
    /* Gathers and sums of the tokens between layers; bytes of all tokens, before encoding. */
    int64_t token_gathers, token_scatters, token_bytes;
    int64_t wait_ns; /* the time for which the computing thread waited */
} rpi_tensor_traffic;

typedef struct rpi_tensor_meeting {
    rp_comm *comm;
    rpi_activation_codec *activations; /* the codec; NULL: exact */
    rp_codec plain;                    /* the codec where `activations` is exact */
    void (*waited)(void *context, int64_t start_ns, int64_t end_ns); /* optional */
    void *context;
    int ranks, rank;
    rp_owned_segment *segments; /* of the operation that is being posted */
    size_t segment_room;
    rpi_tensor_traffic traffic;
} rpi_tensor_meeting;

enum { RPI_NODE_FORWARD, RPI_NODE_BACKWARD, RPI_NODE_PASSES };

/* Between start and finish of a pass of this node, no other pass of the node starts. */
typedef struct rpi_one_tensor_node {
    rpi_tensor_meeting *all;
    struct rpi_one_tensor_node *next;
    uint32_t number; /* the same on all ranks, which build the same graph */
    rp_request *requests[RPI_NODE_PASSES];
} rpi_one_tensor_node;

static inline uint32_t rpi_tensor_node_identity(const rpi_one_tensor_node *node, int pass) {
    return node->number * RPI_NODE_PASSES + (uint32_t)pass;
}
/* The codec of activations, and of their gradients, that ranks send. */
rp_codec rpi_tensor_node_codec(const rpi_one_tensor_node *node);
/* Measures the error of that codec (rpi_activation_codec_measure). */
rp_status rpi_tensor_node_measure(const rpi_one_tensor_node *node, int pass,
                                  const float *elements, size_t count);
/* Waits for the operation that a pass has started. */
rp_status rpi_tensor_node_wait(rpi_one_tensor_node *node, int pass);

#endif
