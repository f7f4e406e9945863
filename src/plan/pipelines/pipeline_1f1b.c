/* One forward, one backward: as few micro-batches in memory as can be without waiting more than
 * AFAB does. */
#include "plan/pipelines/pipeline_kind.h"

static void build(const rpi_pipeline_shape *shape, int stage, rpi_pipeline_writer *writer) {
    rpi_pipeline_put_1f1b(writer, rpi_pipeline_ahead(shape, stage, 1));
}

static int kept(const rpi_pipeline_shape *shape, int stage) {
    return rpi_pipeline_ahead_kept(shape, stage, 1);
}

const rpi_pipeline_kind rpi_pipeline_1f1b = {
    .name = "1f1b",
    .summary = "one forward, one backward by turns: AFAB's time, the least memory",
    .chunks = 1,
    .build = build,
    .kept = kept,
    .unit_time = rpi_pipeline_whole_time,
};
