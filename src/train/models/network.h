/* A model over data of a given shape: its graph, its task's loss, and its parameter record. */
#ifndef RPI_TRAIN_NETWORK_H
#define RPI_TRAIN_NETWORK_H

#include "engine/weights.h"
#include "train/models/model.h"
#include "train/tasks/task.h"

enum { RPI_NETWORK_INPUTS = RPI_TASK_INPUTS + 2 + 1 + RPI_MEMORIES };

typedef struct rpi_network {
    char text[RPI_MODEL_TEXT]; /* as the user named the model */
    const rpi_task *task;
    /* Of the data that it was built for; of sequences what this rank has of them. */
    rpi_data_shape shape;
    rpi_graph *graph;
    rpi_parameter *parameters;
    int parameter_count;
    int tensor_ranks, tensor_rank; /* 1 and 0 where no other rank has a part of the model */
    int context_ranks;             /* that have tokens of each sequence; 1: all are here */
    int64_t gathered_keys;         /* the widest of these (rpi_context_gather); 0: none are */
    /* Inputs of the graph in this order: those of the task, the scale of its loss, and that of
     * its second loss where it has one; f32 scalars. */
    rpi_value_id inputs[RPI_TASK_INPUTS], scale, sample_scale;
    rpi_value_id logits, loss, correct; /* results; of a decoder the first alone */
    /* Where logits are this tensor rank's slice of the vocabulary: from which token on, of how
     * many; else 0. What other ranks tell of theirs is then in `statistics`. */
    int64_t first_logit, whole_logits;
    rpi_value_id statistics;
    /* Of evaluations: the loss without label smoothing, else the same two. */
    rpi_value_id plain_loss, plain_correct;
    /* Where labels are mixed, else RPI_NO_VALUE: inputs behind the scales, a second label of
     * each sample and the scale of its loss, which is a part of `loss`. */
    rpi_value_id mixed_labels, mixed_scale;
    /* Of a model with a memory: tokens that a row remembers, else 0; inputs behind the scales,
     * `remembered` (an i32 scalar) first; remembers[i] is the activation whose last tokens
     * memories[i] shall hold. */
    int64_t memory_length;
    int memory_count;
    rpi_value_id remembered, memories[RPI_MEMORIES], remembers[RPI_MEMORIES];
    rpi_value_id position; /* of a decoder: an input, the tokens that its caches hold */
    /* Of a decoder with an adaptive softmax (cutoff_count above 0): a result, the clusters'
     * scores in the first softmax; its logits are scores of each token in its own. */
    rpi_adaptive_attributes adaptive;
    rpi_value_id cluster_scores;
    /* Of tasks with a second loss, else RPI_NO_VALUE: `loss` is the sum of the first two. */
    rpi_value_id label_loss, sample_loss, sample_correct, sample_logits;
} rpi_network;

/* RP_INVALID: an unknown model or option; or data that this model cannot take. */
rp_status rpi_network_build(const char *model, const rpi_data_shape *shape,
                            rpi_network *out_network);
/* What the loss of training is of; evaluations are of the labels alone. */
typedef struct rpi_loss_options {
    double smoothing; /* 0 to 1 of the probability is shared by all classes */
    bool mixes;       /* each sample has two labels */
} rpi_loss_options;
/* The same with these. RP_INVALID: the task takes none of them. */
rp_status rpi_network_build_for(const char *model, const rpi_data_shape *shape,
                                const rpi_loss_options *loss, rpi_network *out_network);
/* The same model, of which this is what one of several tensor ranks has: tensors are cut as
 * their records say, and the graph has nodes where ranks meet. Losses, counts of right answers
 * and whatever lies between layers are the whole's on every rank. Where context ranks share the
 * sequences of `shape`, too, inputs, losses and counts are of this rank's tokens. RP_INVALID:
 * so many ranks cannot hold this model, or these sequences; what would fit. */
rp_status rpi_network_build_split(const char *model, const rpi_data_shape *shape,
                                  const rpi_loss_options *loss, const rpi_tensor_split *split,
                                  rpi_network *out_network);
/* Can so many ranks hold it? Before any data are there; building may find more. RP_INVALID as
 * above. */
rp_status rpi_network_check_split(const char *model, int tensor_ranks);
/* Likewise of ranks that share its sequences, each of so many tokens. */
rp_status rpi_network_check_context(const char *model, int context_ranks, int64_t sequence);
/* The same model as a decoder, for inference: tokens (batch x sequence) that follow those of
 * earlier runs, whose keys and values lie in caches. Inputs of the graph are the tokens, the
 * position, and the caches, each batch x memory x its width, or the memories of a model that
 * has them; there are no labels and no loss. RP_INVALID: no language model. */
rp_status rpi_network_build_decoder(const char *model, rpi_network *out_network);
void rpi_network_close(rpi_network *network); /* zeros are fine */

/* The initial elements of all parameters and states that the weights have: the same for any
 * number of ranks, and in a part of the model, or a tensor rank's shards of it, what the whole
 * has there. */
void rpi_network_initialise(const rpi_network *network, rpi_weights *weights, uint64_t seed);
/* What this tensor rank has of record `index`, run by run: `local` counts from the beginning of
 * its elements, `whole` from that of the whole tensor. Stops at the first failure. */
typedef rp_status (*rpi_network_run_function)(void *context, const rpi_parameter *parameter,
                                              const rpi_shard_run *run);
rp_status rpi_network_runs(const rpi_network *network, int index, rpi_network_run_function each,
                           void *context);
/* Tokens of a sequence, of all ranks that share it, with what fills it up. */
int64_t rpi_network_tokens(const rpi_network *network);
/* Bytes of one sample of input `index`, as this rank has it. */
size_t rpi_network_input_bytes(const rpi_network *network, int index);
/* The elements of record `index`; NULL: the weights are a part's that does without it. */
float *rpi_network_elements(const rpi_network *network, rpi_weights *weights, int index);

#endif
