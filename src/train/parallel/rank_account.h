/* What one rank holds of a training, item by item, before anything is allocated: counted from
 * its stage of the model and the programs that would run. */
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
    RPI_HELD_ACTIVATIONS, /* of all micro-batches in flight, and their gradients */
    RPI_HELD_MESSAGES,    /* what comes from other stages */
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
    int64_t micro_batch; /* samples */
    int micro_batches;   /* of a step */
    int slots;           /* of the optimizer, one number each a parameter */
    int zero, sharers;   /* what so many replicas share: 1 the optimizer, 2 gradients, 3 all, */
    int64_t bucket_bytes; /* in buckets of so many, 0: the usual ones, */
    bool whole_tensors;   /* of which the optimizer steps no part; */
    int host_ranks;       /* by 3, that keep a second copy among them */
    bool feeds_back;      /* by a lossy codec */
    rp_codec activations; /* of what stages hand each other; zeros: as it is */
} rpi_rank_account_options;

typedef struct rpi_rank_account {
    int64_t parameters, states;           /* elements */
    int in_flight;                        /* micro-batches, of the chunk with most */
    double forward_flops, backward_flops; /* of a step */
    double bytes[RPI_HELD_KINDS], all;
    double sent_bytes; /* to other stages, in a step */
    double tie_bytes;  /* of the messages: a tied table's gradient from its other stage */
} rpi_rank_account;

/* RP_INVALID, RP_UNSUPPORTED: a program that cannot be; RP_NOMEM. */
rp_status rpi_rank_account_make(const rpi_rank_account_options *options,
                                rpi_rank_account *out_account);
/* The same rank, where replicas share what these options say, and nothing else is changed. */
rp_status rpi_rank_account_share(const rpi_rank_account_options *options,
                                 rpi_rank_account *in_out_account);
rpi_held_kind rpi_rank_account_largest(const rpi_rank_account *account);

#endif
