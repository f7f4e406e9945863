/* The orders of all stages of a pipeline, and which pass waits for which. */
#ifndef RPI_PLAN_PIPELINE_ORDERS_H
#define RPI_PLAN_PIPELINE_ORDERS_H

#include "plan/pipelines/pipeline_kind.h"

typedef struct rpi_pipeline_orders {
    const rpi_pipeline_kind *kind;
    rpi_pipeline_shape shape;
    int each;  /* passes of a stage */
    int count; /* of all: a pass is named by its number, those of stage 0 first */
    rpi_pipeline_pass *passes; /* owned: [count] */
    int *found;                /* owned: numbers by kind, part and micro-batch */
} rpi_pipeline_orders;

/* RP_NOMEM; RP_INTERNAL: the kind runs something never or twice. Zeroed on failure; else
 * destroy it with rpi_pipeline_orders_destroy. Pure: alike on all ranks, of which each runs its
 * own stage's: passes[stage * each] and the next. */
rp_status rpi_pipeline_orders_build(const rpi_pipeline_kind *kind,
                                    const rpi_pipeline_shape *shape,
                                    rpi_pipeline_orders *out_orders);
void rpi_pipeline_orders_destroy(rpi_pipeline_orders *orders); /* zeros are fine */

/* Find all passes again. RP_INTERNAL: one that is there twice, or not at all, says which. */
rp_status rpi_pipeline_orders_index(rpi_pipeline_orders *orders);

static inline int rpi_pipeline_stage_of(const rpi_pipeline_orders *orders, int pass) {
    return pass / orders->each;
}
int rpi_pipeline_part_of(const rpi_pipeline_orders *orders, int pass);

/* The pass whose result this one needs, beside what its stage has kept; -1: none. */
int rpi_pipeline_input(const rpi_pipeline_orders *orders, int pass);
/* The pass of another stage that needs this one's result, which is sent; -1: none. */
int rpi_pipeline_receiver(const rpi_pipeline_orders *orders, int pass);

/* "F3a of stage 2". Returns text. */
enum { RPI_PIPELINE_TEXT = 64 };
const char *rpi_pipeline_text_of(const rpi_pipeline_orders *orders, int pass,
                                 char text[RPI_PIPELINE_TEXT]);

#endif
