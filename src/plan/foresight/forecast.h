/* What is known of a step before it runs. */
#ifndef RPI_PLAN_FORECAST_H
#define RPI_PLAN_FORECAST_H

#include "plan/foresight/machine.h"
#include "plan/foresight/rank_memory.h"

typedef enum rpi_time_item {
    RPI_TIME_COMPUTE,
    RPI_TIME_TENSOR, /* sums over tensor-parallel ranks */
    RPI_TIME_KEYS,   /* keys and values gathered among ranks that share sequences */
    RPI_TIME_BUBBLE, /* a pipeline that fills and drains, and uneven stages */
    RPI_TIME_HOPS,   /* from stage to stage */
    RPI_TIME_DATA,   /* sums over data-parallel ranks that no backward pass hides */
    RPI_TIME_OPTIMIZER,
    RPI_TIME_HOST, /* what a step takes beside that */
    RPI_TIME_ITEMS
} rpi_time_item;
extern const char *const rpi_time_names[RPI_TIME_ITEMS];

/* What the items are made of, in seconds, of the slowest stage. */
typedef struct rpi_step_terms {
    double products_s, attention_s, memory_s; /* of a layer's forward pass */
    double sums_s;                            /* over tensor-parallel ranks in it */
    double keys_s;  /* keys and values gathered once among ranks that share sequences */
    double start_s; /* of the host, for it */
    double forward_s, backward_s, again_s; /* of a layer */
    double head_s;                         /* forward and backward, and of the loss */
    double slot_s;                         /* of a micro-batch on the slowest stage */
    double hop_s;
    double data_s;   /* all of it, hidden or not */
    double codec_s;  /* of that, on the device */
    double hidden_s; /* what may hide it */
    int64_t micro_batches, layers;
    int64_t data_hosts; /* that a group which sums gradients is on */
    double data_bytes;  /* of a rank's gradients */
} rpi_step_terms;

typedef struct rpi_forecast {
    double seconds[RPI_TIME_ITEMS];
    double step_s, low_s, high_s; /* 9 of 10 trainings it was fitted to are between these */
    double tokens_per_s;
    double mfu; /* model's operations over the peak's */
    double peak_flops;
    rpi_rank_memory memory; /* of the rank that holds most */
    bool fits;
    bool is_far; /* from what it was fitted to: more ranks, or smaller work that waits for the
                    host */
    rpi_step_terms terms;
} rpi_forecast;

#endif
