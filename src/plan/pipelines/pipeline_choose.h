/* Which pipeline is the quickest for these stages and this link. */
#ifndef RPI_PLAN_PIPELINE_CHOOSE_H
#define RPI_PLAN_PIPELINE_CHOOSE_H

#include "plan/pipelines/pipeline_cut.h"

enum { RPI_PIPELINE_ROWS = 16 };

typedef struct rpi_pipeline_request {
    int64_t stages, micro_batches;
    int64_t chunks;           /* of kinds that do not say it; 0: 2 */
    rpi_pipeline_model model; /* with one entry for each stage, unless there are layers */
    /* Layers that are cut into the parts of each kind, whose times and bytes they give, or
     * NULL. */
    const rpi_pipeline_layer *layers;
    int layer_count;
    double memory_bytes; /* of a stage, for what passes keep; 0: no limit */
    int parts;           /* only kinds that have so many; 0: any */
    bool ends_apart;     /* only kinds whose first and last part are on two stages */
    bool whole;          /* only kinds that rpi_pipeline_is_whole() */
    /* Of kinds whose steps take up to so much more than the quickest, as a share of it, that
     * which keeps least is taken; 0: a thousandth of a percent. */
    double near;
} rpi_pipeline_request;

/* A kind, built and priced. */
typedef struct rpi_pipeline_trial {
    rpi_pipeline_orders orders;
    rpi_pipeline_cut cut;     /* zeros without layers */
    rpi_pipeline_model model; /* of the stages, or of the parts of the cut */
    rpi_pipeline_price price;
} rpi_pipeline_trial;

/* Layers are cut so that the costliest part costs as little as can be, and a part then begins a
 * layer earlier or later wherever that makes the step shorter (a stage of several parts is to
 * have no more than others), for as long as the simulation is a matter of moments.
 * RP_INVALID: it cannot be; what can. RP_NOMEM. Zeroed on failure; else free it. */
rp_status rpi_pipeline_trial_make(const rpi_pipeline_request *request,
                                  const rpi_pipeline_kind *kind, int64_t chunks,
                                  rpi_pipeline_trial *out_trial);
void rpi_pipeline_trial_free(rpi_pipeline_trial *trial); /* zeros are fine */

typedef enum rpi_pipeline_verdict {
    RPI_PIPELINE_FITS,
    RPI_PIPELINE_MEMORY, /* a stage keeps more than the limit */
    RPI_PIPELINE_LAYERS, /* there are fewer layers than parts; it has no price */
    RPI_PIPELINE_UNASKED /* it has other parts or ends than are asked for; it has no price */
} rpi_pipeline_verdict;

/* What a kind comes to. */
typedef struct rpi_pipeline_row {
    const rpi_pipeline_kind *kind;
    rpi_pipeline_shape shape;
    rpi_pipeline_verdict verdict;
    double time_s, bubble, exposed_s, link_s; /* link_s: of the stage that waits longest */
    int64_t messages;
    int kept;          /* of the stage that keeps most */
    double kept_bytes; /* of the stage that keeps most of these */
} rpi_pipeline_row;

/* One kind. RP_INVALID: it cannot be; what can. */
rp_status rpi_pipeline_row_make(const rpi_pipeline_request *request,
                                const rpi_pipeline_kind *kind, int64_t chunks,
                                rpi_pipeline_row *out_row);

/* All kinds, in the order of the catalogue, and which of them to take: of those that fit the
 * quickest, of about equally quick ones (request->near) that which keeps least.
 * -1: none fits. Pure: alike on all ranks. RP_INVALID, RP_NOMEM. */
rp_status rpi_pipeline_choose(const rpi_pipeline_request *request,
                              rpi_pipeline_row rows[RPI_PIPELINE_ROWS], int *out_count,
                              int *out_best);

#endif
