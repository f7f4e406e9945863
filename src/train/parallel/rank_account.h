/* The memory that one rank holds in a training, item by item. It is counted from the rank's
 * stage of the model and the programs that would run, before anything is allocated. */
#ifndef RPI_TRAIN_RANK_ACCOUNT_H
#define RPI_TRAIN_RANK_ACCOUNT_H

#include "engine/backend.h"
#include "redpoll/codec.h"
#include "train/parallel/stage.h"

typedef enum rpi_held_kind {
    RPI_HELD_PARAMETERS,
    RPI_HELD_GRADIENTS,
    RPI_HELD_OPTIMIZER,
    RPI_HELD_STATES,
    RPI_HELD_RESIDUAL,
    RPI_HELD_ACTIVATIONS, /* of all micro-batches in flight, with gradients */
    RPI_HELD_MESSAGES,    /* received from other stages */
    RPI_HELD_WORKSPACE,
    RPI_HELD_KINDS
} rpi_held_kind;

/* "parameters", ... */
const char *rpi_held_name(rpi_held_kind kind);

typedef struct rpi_rank_account_options {
    const rpi_network *network;
    const rpi_model_stage *stage; /* NULL: the whole network */
    const rpi_backend *backend;   /* NULL: the fastest */
    rp_dtype compute;
    bool recompute;
    int64_t micro_batch;  /* samples */
    int micro_batches;    /* in a step */
    int slots;            /* numbers that the optimizer keeps for each parameter */
    int zero, sharers;    /* --zero, and the replicas that share: 1 state, 2 gradients, 3 all */
    int64_t bucket_bytes; /* of a bucket; 0: the default */
    bool whole_tensors;   /* the optimizer updates whole tensors only */
    int host_ranks;       /* with zero 3: ranks that share a second copy */
    bool feeds_back;      /* the codec is lossy and has error feedback */
    rp_codec activations; /* the codec between stages; zeros: exact */
} rpi_rank_account_options;

typedef struct rpi_rank_account {
    int64_t parameters, states;           /* elements */
    int in_flight;                        /* the most micro-batches of a chunk */
    double forward_flops, backward_flops; /* in a step */
    double bytes[RPI_HELD_KINDS], all;
    double sent_bytes; /* to other stages in a step */
    double tie_bytes;  /* among the messages: a tied table's gradient from its other stage */
} rpi_rank_account;

/* RP_INVALID, RP_UNSUPPORTED: a program cannot be compiled; RP_NOMEM. */
rp_status rpi_rank_account_make(const rpi_rank_account_options *options,
                                rpi_rank_account *out_account);
/* The same rank when replicas share what these options say (zero, sharers), with everything
 * else as in *in_out_account. */
rp_status rpi_rank_account_share(const rpi_rank_account_options *options,
                                 rpi_rank_account *in_out_account);
rpi_held_kind rpi_rank_account_largest(const rpi_rank_account *account);

#endif
