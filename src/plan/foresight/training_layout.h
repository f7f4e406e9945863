/* A training as data for a planner: a transformer, its batch, and how ranks share both.
 *
 * Ranks in order are tensor-parallel first, then those that share sequences, then
 * data-parallel, then stages of a pipeline, as rank = ((stage D + replica) c + context) t +
 * tensor: tensor-parallel ranks are neighbours on a host. */
#ifndef RPI_PLAN_TRAINING_LAYOUT_H
#define RPI_PLAN_TRAINING_LAYOUT_H

#include "plan/foresight/transformer.h"

enum { RPI_ZERO_MOST = 3 };

/* The bytes of a parameter: a row of training_layout.c's table. */
typedef struct rpi_precision {
    const char *name;
    const char *dtype; /* of the matrix products; selects a device's rate */
    double weight, gradient, optimizer;
    double activation; /* an element */
    const char *help;
} rpi_precision;
/* NULL past the end. */
const rpi_precision *rpi_precision_at(int index);
/* RP_INVALID: there is no such name; the message suggests the nearest. */
rp_status rpi_precision_find(const char *name, const rpi_precision **out);

typedef struct rpi_training_layout {
    rpi_transformer model;
    int64_t sequence;                  /* tokens of a sample */
    int64_t micro_batch, global_batch; /* samples */
    int64_t tensor, pipeline, data;
    int64_t context;    /* ranks that share each sequence: two pieces each */
    int64_t interleave; /* chunks of layers a rank has; 1: one */
    /* The schedule of the pipeline, a kind of plan/pipelines; NULL: 1f1b, or interleaved if a
     * rank has chunks. */
    const char *schedule;
    int zero; /* what data-parallel ranks share: 1 optimizer, 2 gradients, 3 all */
    bool sequence_parallel; /* tensor-parallel ranks share tokens, rounded up */
    bool fused_attention;   /* scores are never stored */
    rpi_recompute recompute;
    const rpi_precision *precision;
} rpi_training_layout;

/* Micro-batches of a pipeline in a step. */
int64_t rpi_layout_micro_batches(const rpi_training_layout *layout);
int64_t rpi_layout_ranks(const rpi_training_layout *layout);
/* The ranks that hold the same parameters, sum their gradients and share them with ZeRO: those
 * of all replicas, and those that share sequences. */
int64_t rpi_layout_sharers(const rpi_training_layout *layout);
/* The tokens of a sample, and of a micro-batch, with which a rank computes: if a length does
 * not divide, with what fills its pieces up. */
int64_t rpi_layout_sample_tokens(const rpi_training_layout *layout);
double rpi_layout_tokens(const rpi_training_layout *layout);
/* The number of parts into which tensor-parallel ranks cut the tokens between products: the
 * number of ranks, less if tokens do not divide and the first rank has more than the last; or
 * 1. */
double rpi_layout_parts(const rpi_training_layout *layout);
/* The width of a token's keys, or of its values, on a rank. */
double rpi_layout_keys(const rpi_training_layout *layout);

/* RP_INVALID: something does not divide; the message says what, and what to give instead. Only
 * this function knows which grids are legal. */
rp_status rpi_layout_check(const rpi_training_layout *layout);

/* Checks the same model and batch on one rank, for counts of the whole. */
rp_status rpi_layout_check_batch(const rpi_training_layout *layout);

#endif
