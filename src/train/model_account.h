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
    /* Of which tensor rank of how many; 0 ranks: of a model in one piece. */
    int tensor_ranks, tensor_rank;
    int context_ranks;      /* that share each sequence; up to 1: none do */
    bool repeats_sums;      /* rpi_tensor_split.repeats */
    bool sequence_parallel; /* rpi_tensor_split.tokens */
    int sharers; /* ranks that share the optimizer's state; up to 1: each has all of it */
    int zero;    /* then: from 2 on gradients, too, and by 3 parameters */
    bool whole_tensors; /* of which it steps no part of a tensor */
} rpi_account_options;

/* Nodes and parameters whose names begin alike: "h.3", "layer1.0", "wte". */
typedef struct rpi_layer_account {
    char name[RPI_LAYER_NAME];
    int64_t parameters; /* elements; those that layers share count where they are named */
    rpi_node_facts facts;
} rpi_layer_account;

typedef struct rpi_model_account {
    int64_t parameters, states; /* elements of all */
    int64_t owned;              /* of parameters, that one rank steps, who has most */
    int64_t gradients, values;  /* elements of gradients and of parameters that are in memory at
                                   a time, at most, on that rank */
    double travelling; /* bytes of keys and values on their way between context ranks */
    rpi_program_facts facts;
    rpi_layer_account *layers; /* as the graph goes */
    int layer_count;
} rpi_model_account;

/* model: as for rpi_network_build. Of a tensor rank everything is of what it has itself.
 * RP_INVALID: it cannot take such samples, or be shared by so many ranks; RP_UNSUPPORTED:
 * this machine does not compute in that dtype. */
rp_status rpi_model_account_make(const char *model, const rpi_account_options *options,
                                 rpi_model_account *out_account);
void rpi_model_account_free(rpi_model_account *account); /* zeros are fine */

#endif
