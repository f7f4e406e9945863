/* What a model costs before anything is allocated: parameters, operations and memory of a
 * training step, by layer. Counted from its graph and from the program that would run. */
#ifndef RPI_TRAIN_MODEL_ACCOUNT_H
#define RPI_TRAIN_MODEL_ACCOUNT_H

#include "engine/program.h"
#include "train/models/layer_names.h"
#include "train/models/network.h"

typedef struct rpi_account_options {
    int64_t batch;
    rpi_data_shape shape; /* of a sample */
    rp_dtype compute;     /* RP_F32 or RP_BF16 */
    bool recompute;       /* of rpi_train_options */
    /* this tensor rank and the number of them; 0 ranks: the model is not divided */
    int tensor_ranks, tensor_rank;
    int context_ranks;      /* ranks that share each sequence; up to 1: none do */
    bool repeats_sums;      /* rpi_tensor_split.repeats */
    bool sequence_parallel; /* rpi_tensor_split.tokens */
    int sharers; /* ranks that share the optimizer's state; up to 1: each has all of it */
    int zero;    /* the stage of ZeRO: from 2 on they share gradients, with 3 parameters */
    bool whole_tensors; /* the optimizer updates whole tensors only */
} rpi_account_options;

/* Nodes and parameters with the same beginning of their names: "h.3", "layer1.0", "wte". */
typedef struct rpi_layer_account {
    char name[RPI_LAYER_NAME];
    int64_t parameters; /* elements; shared parameters count where they are named */
    rpi_node_facts facts;
} rpi_layer_account;

typedef struct rpi_model_account {
    int64_t parameters, states; /* elements of all */
    int64_t owned;              /* parameters that one rank updates; of the rank with most */
    /* the most elements of gradients and of parameters that are in memory at a time, on that
     * rank */
    int64_t gradients, values;
    double travelling; /* bytes of keys and values that context ranks are exchanging */
    rpi_program_facts facts;
    rpi_layer_account *layers; /* in the order of the graph */
    int layer_count;
} rpi_model_account;

/* model: as for rpi_network_build(). For a tensor rank all numbers are those of its own part.
 * RP_INVALID: the model cannot take such samples, or be shared by so many ranks;
 * RP_UNSUPPORTED: this machine does not compute in that dtype. */
rp_status rpi_model_account_make(const char *model, const rpi_account_options *options,
                                 rpi_model_account *out_account);
void rpi_model_account_free(rpi_model_account *account); /* zeros are fine */

#endif
