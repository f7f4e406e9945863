/* All forward, all backward (GPipe): one message each way is all that a micro-batch waits for,
 * and every stage keeps all of them. */
#include "plan/pipelines/pipeline_kind.h"

static void build(const rpi_pipeline_shape *shape, int stage, rpi_pipeline_writer *writer) {
    (void)stage;
    rpi_pipeline_put_1f1b(writer, shape->micro_batches);
}

static int kept(const rpi_pipeline_shape *shape, int stage) {
    (void)stage;
    return shape->micro_batches;
}

const rpi_pipeline_kind rpi_pipeline_afab = {
    .name = "afab",
    .summary = "all forward, all backward (GPipe): keeps every micro-batch",
    .chunks = 1,
    .build = build,
    .kept = kept,
    .unit_time = rpi_pipeline_whole_time,
};
