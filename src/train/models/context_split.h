/* How the ranks of a context group hold each sequence together, as a model sees it.
 *
 * A sequence is cut into two pieces a rank, of which rank r of n has the r-th and the r-th from
 * the end: a causal query sees the keys before it, and so each rank has as many pairs to work
 * on; where all see all it has as many in any case, and a share of the padding behind texts.
 * Where a length does not divide the last pieces are filled up with tokens that nobody sees.
 * Parameters are on all ranks; whatever a layer does with each token alone a rank does with its
 * own. Attention reads the keys and values of all, and so does what is said of tokens beside
 * each other, as of where a span begins:
 *
 *     gather   forward: what the ranks have of keys and values becomes the whole sequence's;
 *              backward: their gradients are summed, and each rank gets those of its tokens
 *
 * What is gathered is not kept: it is gathered again where backward reads it. Who has a
 * communicator (train/parallel/context_nodes.h) says what the node does. */
#ifndef RPI_TRAIN_CONTEXT_SPLIT_H
#define RPI_TRAIN_CONTEXT_SPLIT_H

#include "engine/layers.h"

/* A node that gathers tokens has one of three forms. Two inputs: keys and values, each batch x
 * T x `keys`; outputs are the keys and the values of all tokens. One input, batch x T x
 * (queries + 2 keys), in which a token's queries come first; outputs are the keys and the
 * values of all tokens, and then this rank's queries. One input, batch x T x `keys`; the output
 * is that of all tokens. */
typedef struct rpi_context_gather {
    int64_t queries, keys; /* queries 0: the inputs as a whole are gathered */
    bool is_one;           /* there is one of them */
} rpi_context_gather;

enum { RPI_CONTEXT_PARTS = 2 };
static inline int rpi_context_parts(const rpi_context_gather *gather) {
    return gather->is_one ? 1 : RPI_CONTEXT_PARTS;
}
static inline int rpi_context_inputs(const rpi_context_gather *gather) {
    return gather->queries ? 1 : rpi_context_parts(gather);
}

typedef struct rpi_context_split {
    int ranks, rank; /* 0 or 1 ranks: each has whole sequences */
    /* The functions of one node, and their context, which outlives the graph. NULL: there are
     * none; the graph can be compiled and counted, but its runs fail. */
    rp_status (*describe)(void *nodes, const rpi_context_gather *gather,
                          rpi_external_attributes *out_attributes);
    void *nodes;
} rpi_context_split;

static inline bool rpi_context_is_split(const rpi_context_split *split) {
    return split->ranks > 1;
}

/* This rank's tokens of a sequence of this length; zeros: all of them. sequence 0: its pieces
 * are full. */
rpi_token_pieces rpi_context_pieces(const rpi_context_split *split, int64_t sequence);

/* A node with its one or two inputs; returns its first output. */
rpi_value_id rpi_context_gather_node(rpi_graph *graph, const rpi_context_split *split,
                                     const char *name, const rpi_context_gather *gather,
                                     const rpi_value_id *inputs);

/* The number of tokens that a rank has of so many, padding included: two pieces of equal
 * length. */
int64_t rpi_context_own(const rpi_context_split *split, int64_t sequence);

/* The number of them that this rank has without padding. */
int64_t rpi_context_tokens(const rpi_context_split *split, int64_t sequence);

#endif
