/* ZB-H2: ZB-H1 with twice the warm-up. No stage waits between its first pass and its last, and
 * stages begin and end one behind the other; a slow link is paid for once. */
#include "plan/pipelines/pipeline_kind.h"

static void build(const rpi_pipeline_shape *shape, int stage, rpi_pipeline_writer *writer) {
    rpi_pipeline_put_halves(writer, rpi_pipeline_ahead(shape, stage, 2), 2 * stage);
}

/* As many as 1F1B with twice the warm-up on its first stage: what comes sooner is kept for its
 * weights. */
static int kept(const rpi_pipeline_shape *shape, int stage) {
    (void)stage;
    return rpi_pipeline_ahead_kept(shape, 0, 2);
}

/* Of few micro-batches the last stages wait with passes for weights for inputs that do not
 * come. */
static int64_t unit_time(const rpi_pipeline_shape *shape) {
    int64_t m = shape->micro_batches, p = shape->stages, more = p - 1 - m / 2;
    return 3 * m + p - 1 + (more > 0 ? more : 0);
}

const rpi_pipeline_kind rpi_pipeline_zb_h2 = {
    .name = "zb-h2",
    .summary = "ZB-H1 with twice the warm-up: no stage waits midway, twice the memory",
    .chunks = 1,
    .splits = true,
    .build = build,
    .kept = kept,
    .unit_time = unit_time,
};
