/* `redpoll plan pipeline`: a step of a pipeline, and which schedule is the quickest. */
#ifndef RPI_CLI_PLAN_PIPELINE_H
#define RPI_CLI_PLAN_PIPELINE_H

#include "plan/pipelines/pipeline_choose.h"

enum { RPI_PIPELINE_COLUMNS = 120 }; /* of the picture, unless given */

typedef struct rpi_pipeline_plan {
    rpi_pipeline_request request;
    const char *link, *local; /* as given; link NULL: links cost nothing */
    int64_t hosts;            /* 0: each stage has a host of its own */
    bool has_kept;            /* the bytes that a stage keeps of a micro-batch are known */
    rpi_pipeline_row rows[RPI_PIPELINE_ROWS];
    int row_count, best;      /* best: -1 if none fits */
    int chosen;               /* the row that is shown */
    rpi_pipeline_trial shown; /* of that row */
} rpi_pipeline_plan;

enum { RPI_PIPELINE_TIES = 16 }; /* shown */

/* columns: of the picture, at most. RP_NOMEM. */
rp_status rpi_pipeline_plan_print(const rpi_pipeline_plan *plan, int columns);
rp_status rpi_pipeline_plan_print_json(const rpi_pipeline_plan *plan);
/* Writes a picture. RP_IO names the path. */
rp_status rpi_pipeline_plan_draw(const rpi_pipeline_plan *plan, const char *path);

#endif
