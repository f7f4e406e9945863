/* The time that a training's pipeline takes for a step: its schedule, simulated by events
 * (plan/pipelines/pipeline_price.h), over the links of its hosts. */
#ifndef RPI_PLAN_PIPELINE_STEPS_H
#define RPI_PLAN_PIPELINE_STEPS_H

#include "redpoll/status.h"

#include <stdint.h>

/* Times of one micro-batch; arrays have a number for each stage. */
typedef struct rpi_pipeline_steps {
    int64_t stages, micro_batches, chunks; /* chunks of a stage: 1, or interleaved */
    const char *schedule; /* a kind; NULL: 1f1b, or interleaved if a stage has chunks */
    const double *forward_s, *backward_s;
    double weights_share; /* share of a backward pass, for kinds that split it */
    double border_bytes;  /* from a part to the next */
    double blocks;        /* share of a message's sending time for which its stage is blocked */
    int64_t stages_per_host;                     /* 0: a stage is on one host or several */
    double bytes_per_s, latency_s;               /* between hosts */
    double inside_bytes_per_s, inside_latency_s; /* between stages of a host */
} rpi_pipeline_steps;

typedef struct rpi_pipeline_time {
    double ideal_s; /* if links cost nothing */
    double time_s;
} rpi_pipeline_time;

/* A lower bound of a step: the largest over the stages of a stage's own work, the first
 * micro-batch's way to it, and the last one's way back. */
double rpi_pipeline_steps_bound(const rpi_pipeline_steps *steps);

/* Simulates, for long steps, the first micro-batches, three for each stage, and continues at
 * the pace of the last of them, because pipelines are periodic by then. Pipelines of more than
 * half a million passes even so get the bound. RP_NOMEM; RP_INVALID: the schedule is not
 * possible. */
rp_status rpi_pipeline_steps_time(const rpi_pipeline_steps *steps, rpi_pipeline_time *out);

#endif
