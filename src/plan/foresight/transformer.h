/* A transformer for a planner: the numbers of its parameters and operations, by part.
 *
 * Operations are of matrix products, a multiply-add being two, with attention counted in full
 * (no causal half), as published rates are: a layer of `h` wide, of a GPT, has
 * 24 h^2 + 4 s h a token forward, the head 2 h V, and a backward pass has twice as many. */
#ifndef RPI_PLAN_TRANSFORMER_H
#define RPI_PLAN_TRANSFORMER_H

#include "redpoll/status.h"

#include <stdbool.h>

typedef struct rpi_transformer {
    int64_t layers, hidden, heads;
    int64_t kv_heads; /* of keys and values */
    int64_t head;     /* width of a head */
    int64_t ffn;      /* width of the feed-forward part */
    int64_t vocabulary;
    int64_t positions; /* rows of the table of positions; 0: none */
    bool gated;        /* two matrices, not one, lead into the feed-forward part */
    bool tied;         /* the head is the table of tokens */
    bool biases;       /* of matrices, and of norms */
    /* The masks that are kept: of a block's outputs, and of the scores of attention. */
    bool dropout, attention_dropout;
} rpi_transformer;

/* RP_INVALID: a size below 1, or heads that do not divide. */
rp_status rpi_transformer_check(const rpi_transformer *model);

/* Parameters of a layer, and of the parts around the layers. */
typedef struct rpi_transformer_parameters {
    double layer_matrices, layer_vectors; /* of one layer; vectors: biases and norms */
    double embedding;                     /* tokens and positions */
    double head;                          /* with the last norm; 0 for the matrix if tied */
    double all;
} rpi_transformer_parameters;
rpi_transformer_parameters rpi_transformer_count(const rpi_transformer *model);

/* Operations a token, forward, at sequences of `sequence` tokens. */
typedef struct rpi_transformer_flops {
    double layer_matrices, layer_attention; /* of one layer */
    double head;
} rpi_transformer_flops;
rpi_transformer_flops rpi_transformer_flops_of(const rpi_transformer *model, int64_t sequence);

/* What is recomputed for the backward pass: nothing, only the scores of attention, or
 * everything in a layer except its input. */
typedef enum rpi_recompute {
    RPI_RECOMPUTE_NONE,
    RPI_RECOMPUTE_SELECTIVE,
    RPI_RECOMPUTE_FULL,
    RPI_RECOMPUTES
} rpi_recompute;
extern const char *const rpi_recompute_names[RPI_RECOMPUTES];
/* RP_INVALID: there is no such word; the message suggests the nearest. */
rp_status rpi_recompute_parse(const char *text, rpi_recompute *out);

/* Operations of a step over so many tokens: those of the model, and those with recomputation.
 * Selective recomputation counts attention twice, as arXiv 2205.05198 does: 1 + s / 3h in the
 * place of 1 + s / 6h. */
typedef struct rpi_step_flops {
    double model, hardware;
} rpi_step_flops;
rpi_step_flops rpi_transformer_step_flops(const rpi_transformer *model, double tokens,
                                          int64_t sequence, rpi_recompute recompute);

#endif
