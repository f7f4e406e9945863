/* The layers of a model as the parts of a pipeline, and what each part then takes. */
#ifndef RPI_PLAN_PIPELINE_CUT_H
#define RPI_PLAN_PIPELINE_CUT_H

#include "plan/pipelines/pipeline_price.h"

/* Of one micro-batch. */
typedef struct rpi_pipeline_layer {
    const char *name;
    const char *tie; /* a word for the table that it shares with other layers; NULL: none */
    double forward_s, inputs_s, weights_s;
    double whole_s;                   /* of a backward pass in one; 0: what its halves take */
    double kept_bytes, weights_bytes; /* as in rpi_pipeline_model */
} rpi_pipeline_layer;

typedef struct rpi_pipeline_cut {
    int parts;
    int *first;      /* owned: [parts + 1], of layers */
    double *numbers; /* owned: [6][parts]: times and bytes */
} rpi_pipeline_cut;

/* So that the costliest part, by all its times, costs as little as can be (plan/stage_cut.h).
 * RP_INVALID: fewer layers than parts, or a time that is negative or no number. RP_NOMEM.
 * Zeroed on failure; else free it. */
rp_status rpi_pipeline_cut_make(const rpi_pipeline_layer *layers, int count, int parts,
                                rpi_pipeline_cut *out_cut);
/* Where a part begins, by so many layers earlier or later; 0 is not moved. false: it cannot be,
 * and nothing has changed. */
bool rpi_pipeline_cut_move(const rpi_pipeline_layer *layers, rpi_pipeline_cut *cut, int part,
                           int by);
void rpi_pipeline_cut_free(rpi_pipeline_cut *cut); /* zeros are fine */

/* The times and bytes of its parts into a model, which borrows them. */
void rpi_pipeline_cut_apply(const rpi_pipeline_cut *cut, rpi_pipeline_model *in_out_model);

/* A table of which two stages hold a copy. */
typedef struct rpi_pipeline_tie {
    const char *tie;
    int first_stage, last_stage; /* of its first layer, and of its last one */
} rpi_pipeline_tie;

/* Those of a pipeline whose first and last layers are on different stages; at most `most` are
 * written. *out_count: how many there are. RP_NOMEM. */
rp_status rpi_pipeline_ties(const rpi_pipeline_layer *layers, int count,
                            const rpi_pipeline_cut *cut, const rpi_pipeline_orders *orders,
                            rpi_pipeline_tie *out_ties, int most, int *out_count);

#endif
