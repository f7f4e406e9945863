/* ZB-H1: backward passes in halves, those for weights where 1F1B would wait: a third of its
 * bubble with 1F1B's memory on the first stage, which all others have, too. */
#include "plan/pipelines/pipeline_kind.h"

static void build(const rpi_pipeline_shape *shape, int stage, rpi_pipeline_writer *writer) {
    rpi_pipeline_put_halves(writer, rpi_pipeline_ahead(shape, stage, 1), stage);
}

/* As many as 1F1B on its first stage: what comes sooner is kept for its weights. */
static int kept(const rpi_pipeline_shape *shape, int stage) {
    (void)stage;
    return rpi_pipeline_ahead_kept(shape, 0, 1);
}

/* Of few micro-batches the way there and back is the longer one: the first stage has a pass for
 * inputs in every second unit, and that for weights between. */
static int64_t unit_time(const rpi_pipeline_shape *shape) {
    int64_t m = shape->micro_batches, p = shape->stages;
    return m >= p ? 3 * m + p - 1 : 2 * m + 2 * p - 1;
}

const rpi_pipeline_kind rpi_pipeline_zb_h1 = {
    .name = "zb-h1",
    .summary = "1F1B with backward in halves (ZB-H1): a third of its bubble",
    .chunks = 1,
    .splits = true,
    .build = build,
    .kept = kept,
    .unit_time = unit_time,
};
