/* A forecast of a step. */
#ifndef RPI_PLAN_FORECAST_H
#define RPI_PLAN_FORECAST_H

#include "plan/foresight/machine.h"
#include "plan/foresight/rank_memory.h"

typedef enum rpi_time_item {
    RPI_TIME_COMPUTE,
    RPI_TIME_TENSOR, /* sums over tensor-parallel ranks */
    RPI_TIME_KEYS,   /* keys and values gathered among ranks that share sequences */
    RPI_TIME_BUBBLE, /* filling and draining a pipeline, and uneven stages */
    RPI_TIME_HOPS,   /* messages from stage to stage */
    RPI_TIME_DATA,   /* sums over data-parallel ranks that are not hidden */
    RPI_TIME_OPTIMIZER,
    RPI_TIME_HOST, /* the rest of the host's time */
    RPI_TIME_ITEMS
} rpi_time_item;
extern const char *const rpi_time_names[RPI_TIME_ITEMS];

/* The terms of these items, in seconds, on the slowest stage. */
typedef struct rpi_step_terms {
    double products_s, attention_s, memory_s; /* of a layer's forward pass */
    double sums_s;                            /* over tensor-parallel ranks, in that pass */
    double keys_s;  /* one gather of keys and values among ranks that share sequences */
    double start_s; /* the host's time to start that pass */
    double forward_s, backward_s, again_s; /* of a layer; again: recomputation */
    double head_s;                         /* the head, forward and backward, with the loss */
    double slot_s;                         /* a micro-batch on the slowest stage */
    double hop_s;
    double data_s;   /* all of the sums, hidden or not */
    double codec_s;  /* part of that, on the device */
    double hidden_s; /* the time that may hide it */
    int64_t micro_batches, layers;
    int64_t data_hosts; /* the hosts of a group that sums gradients */
    double data_bytes;  /* a rank's gradients */
} rpi_step_terms;

typedef struct rpi_forecast {
    double seconds[RPI_TIME_ITEMS];
    /* 9 of 10 trainings to which it was fitted are in this range */
    double step_s, low_s, high_s;
    double tokens_per_s;
    double mfu; /* the model's operations over the peak's */
    double peak_flops;
    rpi_rank_memory memory; /* of the rank that needs most */
    bool fits;
    /* far from the trainings to which it was fitted: it has more ranks, or smaller work that
     * waits for the host */
    bool is_far;
    rpi_step_terms terms;
} rpi_forecast;

#endif
