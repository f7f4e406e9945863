/* Which pipeline is the quickest for these stages and this link. */
#ifndef RPI_PLAN_PIPELINE_CHOOSE_H
#define RPI_PLAN_PIPELINE_CHOOSE_H

#include "plan/pipelines/pipeline_price.h"

enum { RPI_PIPELINE_ROWS = 16 };

typedef struct rpi_pipeline_request {
    int64_t stages, micro_batches;
    int64_t chunks;           /* of kinds that do not say it; 0: 2 */
    rpi_pipeline_model model; /* with one entry for each stage */
    double memory_bytes;      /* of a stage, for what passes keep; 0: no limit */
} rpi_pipeline_request;

/* A kind and what it comes to. */
typedef struct rpi_pipeline_row {
    const rpi_pipeline_kind *kind;
    rpi_pipeline_shape shape;
    double time_s, bubble, exposed_s, link_s; /* link_s: of the stage that waits longest */
    int64_t messages;
    int kept;          /* of the stage that keeps most */
    double kept_bytes; /* of the stage that keeps most of these */
    bool fits;         /* into the memory */
} rpi_pipeline_row;

/* One kind. RP_INVALID: it cannot be; what can. */
rp_status rpi_pipeline_row_make(const rpi_pipeline_request *request,
                                const rpi_pipeline_kind *kind, int64_t chunks,
                                rpi_pipeline_row *out_row);

/* All kinds, in the order of the catalogue, and which of them to take: of those that fit the
 * quickest, of equally quick ones (within a thousandth of a percent) that which keeps least.
 * -1: none fits. Pure: alike on all ranks. RP_INVALID, RP_NOMEM. */
rp_status rpi_pipeline_choose(const rpi_pipeline_request *request,
                              rpi_pipeline_row rows[RPI_PIPELINE_ROWS], int *out_count,
                              int *out_best);

#endif
