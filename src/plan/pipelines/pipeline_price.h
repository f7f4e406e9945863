/* What a step of a pipeline takes, by simulating its stages and links.
 *
 * A stage runs its order, one pass at a time, each as soon as its input is there. What it makes
 * for another stage leaves at once and beside its passes: receives are posted ahead, sends are
 * not waited for. Each host has one network interface, which its stages share: one message at a
 * time each way, whose first byte arrives a latency after it left, and its last no sooner than
 * the interfaces on both ends allow. Inside a host each stage has a way out and a way in of its
 * own. */
#ifndef RPI_PLAN_PIPELINE_PRICE_H
#define RPI_PLAN_PIPELINE_PRICE_H

#include "plan/pipelines/pipeline_orders.h"

/* Times and bytes are of one micro-batch. Arrays have `entries` numbers: one for each stage, of
 * which its chunks have equal shares, or one for each part, in the order of the model. */
typedef struct rpi_pipeline_model {
    int entries;
    const double *forward_s, *inputs_s, *weights_s;
    const double *whole_s;    /* of a backward pass in one; NULL: what its halves take */
    const double *kept_bytes; /* from the forward pass on; NULL: not counted */
    /* Of these, what is kept from the pass for inputs to that for weights; NULL: all. */
    const double *weights_bytes;
    double border_bytes;           /* from a part to the next, and of the gradient back */
    const int *host_of;            /* of each stage, 0 ... stages - 1; NULL: each has its own */
    double bytes_per_s, latency_s; /* between hosts; bytes_per_s 0: unlimited */
    double inside_bytes_per_s, inside_latency_s; /* between stages of a host */
} rpi_pipeline_model;

typedef struct rpi_pass_span {
    double start_s, end_s;
} rpi_pass_span;

typedef struct rpi_stage_price {
    double busy_s, idle_s;  /* together the time of the step */
    double link_s;          /* of idle_s: what it waits for has been made and is under way */
    double first_s, last_s; /* its first pass begins, its last one ends */
    int kept;          /* most micro-batches, one for each chunk, of which it keeps anything */
    double kept_bytes; /* most at once */
} rpi_stage_price;

typedef struct rpi_pipeline_price {
    double time_s;
    double bubble;    /* the share of all stages' time in which they are idle */
    double exposed_s; /* by so much the step is shorter where links cost nothing */
    int64_t messages; /* between stages */
    int stages, passes;
    rpi_stage_price *stage; /* owned: [stages] */
    rpi_pass_span *spans;   /* owned: [passes], by their numbers in the orders */
} rpi_pipeline_price;

/* Pure: alike on all ranks. O(n log n) for n passes: 4 stages and 64 micro-batches take under a
 * millisecond. RP_INVALID: a time, rate or number of bytes that is negative or no number, or
 * entries for neither stages nor parts. RP_INTERNAL: orders that never end. RP_NOMEM. *out is
 * zeroed on failure; else free it. */
rp_status rpi_pipeline_price_make(const rpi_pipeline_orders *orders,
                                  const rpi_pipeline_model *model,
                                  rpi_pipeline_price *out_price);
void rpi_pipeline_price_free(rpi_pipeline_price *price); /* zeros are fine */

#endif
