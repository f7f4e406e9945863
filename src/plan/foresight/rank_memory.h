/* The memory of a rank of a training, by item, in bytes: exact formulas, for each stage.
 *
 * For the backward pass of a layer and micro-batch, b samples of s tokens that are h wide, in
 * 16 bits, with masks of dropout, on t tensor-parallel ranks (arXiv 2205.05198, table 2):
 *
 *     none        s b h (10 + 24/t + 5 a s / (h t)); over t with sequence parallelism
 *     selective   s b h (10 + 24/t), without scores of attention
 *     full        2 s b h, its input alone
 *
 * Stage i of 1F1B holds p - i micro-batches at once. Fused attention stores no scores, but a
 * number of 4 bytes for each head and token. */
#ifndef RPI_PLAN_RANK_MEMORY_H
#define RPI_PLAN_RANK_MEMORY_H

#include "plan/foresight/training_layout.h"

typedef enum rpi_memory_item {
    RPI_MEMORY_WEIGHTS,
    RPI_MEMORY_GRADIENTS,
    RPI_MEMORY_OPTIMIZER,
    RPI_MEMORY_KEPT,    /* activations from forward to backward */
    RPI_MEMORY_PASSING, /* recomputed activations of one layer */
    RPI_MEMORY_LOGITS,  /* logits and their gradients */
    RPI_MEMORY_BUFFERS, /* gathered groups of ZeRO 3, messages of a pipeline */
    RPI_MEMORY_DEVICE,  /* the device's context, and memory lost to fragmentation */
    RPI_MEMORY_ITEMS
} rpi_memory_item;

/* The name of an item, and how to make it smaller. */
extern const char *const rpi_memory_names[RPI_MEMORY_ITEMS];
extern const char *const rpi_memory_advice[RPI_MEMORY_ITEMS];

typedef struct rpi_rank_memory {
    double bytes[RPI_MEMORY_ITEMS];
    double all;
    int64_t stage;
} rpi_rank_memory;

/* Bytes of one layer and micro-batch for the backward pass. */
double rpi_layer_activation_bytes(const rpi_training_layout *layout);
/* The most micro-batches of its layers that stage i holds at once; a fraction with chunks. */
double rpi_stage_in_flight(const rpi_training_layout *layout, int64_t stage);
/* The layers of stage i, as even as possible. Those that do not divide go to the stages between
 * the first, which has the embedding, and the last, which has the head. */
int64_t rpi_stage_layers(const rpi_training_layout *layout, int64_t stage);
/* Elements of the parameters with which a rank of stage i computes. */
double rpi_stage_parameters(const rpi_training_layout *layout, int64_t stage);

/* The memory of a rank of stage i, on a device that takes `context_bytes` for itself and loses
 * a share of all memory to fragmentation. The layout must have been checked. */
rpi_rank_memory rpi_rank_memory_of(const rpi_training_layout *layout, int64_t stage,
                                   double context_bytes, double fragment_share);
/* The memory of the stage that needs most. */
rpi_rank_memory rpi_rank_memory_most(const rpi_training_layout *layout, double context_bytes,
                                     double fragment_share);
/* The largest item. */
rpi_memory_item rpi_rank_memory_largest(const rpi_rank_memory *memory);

#endif
