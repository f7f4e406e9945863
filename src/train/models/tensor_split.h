/* How the ranks of a tensor group hold one model together: what a model's page knows of it.
 *
 * Each layer's tensors are cut over `ranks`. Between the layers all ranks have the same
 * activations; inside a cut layer each has its own part. A model says where that begins and
 * ends, by two words, and how each tensor is cut, by the shard of its record:
 *
 *     split   forward: nothing; backward: the ranks' gradients are summed
 *     join    forward: the ranks' parts are summed; backward: nothing
 *
 * With sequence parallelism (`tokens`) each rank has a part of the tokens between the layers
 * (Korthikanti et al., "Reducing activation recomputation", arXiv 2205.05198), and the words
 * are:
 *
 *     split   forward: all tokens are gathered; backward: gradients are summed, each rank's own
 *     join    forward: parts are summed, each rank's own tokens; backward: all are gathered
 *
 * Who has a communicator (train/parallel/tensor_nodes.h) says what the nodes at these places
 * do. Shoeybi et al., "Megatron-LM", arXiv 1909.08053, where they are called f and g. */
#ifndef RPI_TRAIN_TENSOR_SPLIT_H
#define RPI_TRAIN_TENSOR_SPLIT_H

#include "engine/layers.h"
#include "train/models/context_split.h"
#include "train/models/parameter.h"

typedef enum rpi_tensor_node {
    RPI_TENSOR_SPLIT,
    RPI_TENSOR_JOIN,
    /* The same two over parts of the tokens, batch x part x width here, batch x tokens x width
     * there. */
    RPI_TENSOR_SPLIT_TOKENS,
    RPI_TENSOR_JOIN_TOKENS,
    /* From a part of the tokens to all of them, of which all ranks make the same; backward:
     * this rank's part of the gradient. And back; backward: zeros for all other tokens. */
    RPI_TENSOR_ALL_TOKENS,
    RPI_TENSOR_OWN_TOKENS,
    /* What rank 0 has, to all ranks; backward: the gradient, which all have, is its. */
    RPI_TENSOR_FIRST,
    /* Small tensors of all ranks, one behind the other, in rank order; backward: this rank's
     * part of the gradient, which all ranks make alike. */
    RPI_TENSOR_GATHER
} rpi_tensor_node;

typedef struct rpi_tensor_split {
    int ranks, rank; /* 0 or 1 ranks: the model is whole */
    /* The functions of one node, and their context, which outlives the graph. NULL: there are
     * none; the graph may be compiled and counted, and its runs fail. */
    rp_status (*describe)(void *nodes, rpi_tensor_node node, const char *name,
                          rpi_external_attributes *out_attributes);
    void *nodes;
    /* In blocks that are recomputed, sums of parts are made again where backward needs them,
     * which costs their communication and spares their memory. All ranks alike. */
    bool repeats;
    /* Between layers each rank has a part of the tokens: ceil(T / ranks) of them, the last ones
     * with padding behind. */
    bool tokens;
    /* Then: T as the graph has it, a number or a named dimension, and that part. The builder's
     * to set (rpi_block_tokens). */
    int64_t all_tokens, part_tokens;
    rpi_context_split context; /* who else has tokens of this rank's sequences */
} rpi_tensor_split;

static inline bool rpi_tensor_is_split(const rpi_tensor_split *split) {
    return split->ranks > 1;
}

static inline bool rpi_tensor_cuts_tokens(const rpi_tensor_split *split) {
    return rpi_tensor_is_split(split) && split->tokens;
}

/* The shape of what this rank has of a record. false: it has nothing, or the graph has failed,
 * since so many ranks cannot share it: of what is cut each has something of its own, unless its
 * gradient adds up. */
bool rpi_tensor_split_shape(rpi_graph *graph, const rpi_tensor_split *split,
                            const rpi_parameter *record, rpi_shape *out_shape);

/* Have several ranks the same elements of a record that has been checked? */
bool rpi_tensor_split_copies(const rpi_tensor_split *split, const rpi_parameter *record);

/* A node of this kind over x. */
rpi_value_id rpi_tensor_split_node(rpi_graph *graph, const rpi_tensor_split *split,
                                   rpi_tensor_node node, const char *name, rpi_value_id x);

/* Elements [*out_first, *out_end) of an axis of `length` that is cut element by element. */
void rpi_tensor_split_range(const rpi_tensor_split *split, int64_t length, int64_t *out_first,
                            int64_t *out_end);

/* RP_INVALID: `count` of `what` ("heads") cannot be dealt out evenly; how many ranks could. */
rp_status rpi_tensor_split_check(const rpi_tensor_split *split, const char *what,
                                 int64_t count);
/* The same of what is cut unevenly, but of which each rank has one at least. */
rp_status rpi_tensor_split_check_units(const rpi_tensor_split *split, const char *what,
                                       int64_t count);
/* The same of what several ranks may hold, where there are fewer than ranks. */
rp_status rpi_tensor_split_check_shared(const rpi_tensor_split *split, const char *what,
                                        int64_t count);

#endif
