/* 1F1B with twice the warm-up. In 1F1B a stage waits for the answer to what it has just sent,
 * there and back, with every micro-batch; here one more is under way for each stage behind, so
 * that a slow link is paid for once. */
#include "plan/pipelines/pipeline_kind.h"

static void build(const rpi_pipeline_shape *shape, int stage, rpi_pipeline_writer *writer) {
    rpi_pipeline_put_1f1b(writer, rpi_pipeline_ahead(shape, stage, 2));
}

static int kept(const rpi_pipeline_shape *shape, int stage) {
    return rpi_pipeline_ahead_kept(shape, stage, 2);
}

const rpi_pipeline_kind rpi_pipeline_eager_1f1b = {
    .name = "eager-1f1b",
    .summary = "1F1B with twice the warm-up: pays for a slow link once, twice the memory",
    .chunks = 1,
    .build = build,
    .kept = kept,
    .unit_time = rpi_pipeline_whole_time,
};
