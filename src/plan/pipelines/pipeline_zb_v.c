/* ZB-V: two chunks a stage, the second on the way back, so that the last part is on the first
 * stage and backward passes begin there as soon as forward ones have ended; halves of backward
 * passes fill what 1F1B waits for. No stage waits midway, with 1F1B's memory.
 *
 * Made for 2 stages - 1 micro-batches and more; of fewer, those that do not exist are left out.
 */
#include "plan/pipelines/pipeline_kind.h"

enum { FIRST, SECOND };

/* How many passes of each kind and chunk there are so far. */
typedef struct progress {
    rpi_pipeline_writer *writer;
    int next[RPI_PASS_KINDS][2];
} progress;

static void put(progress *o, rpi_pass_kind kind, int chunk) {
    rpi_pipeline_put(o->writer, kind, chunk, o->next[kind][chunk]++);
}

static void forward(progress *o, int chunk) {
    put(o, RPI_PASS_FORWARD, chunk);
}

static void inputs(progress *o, int chunk) {
    put(o, RPI_PASS_INPUTS, chunk);
}

static void both_halves(progress *o, int chunk) {
    put(o, RPI_PASS_INPUTS, chunk);
    put(o, RPI_PASS_WEIGHTS, chunk);
}

static void warm_up(progress *o, int stage, int behind) {
    for (int k = 0; k < 2 * behind + 1; k++) forward(o, FIRST);
    for (int k = 0; k < stage; k++) {
        forward(o, SECOND);
        forward(o, FIRST);
    }
    for (int k = 0; k <= behind; k++) {
        forward(o, SECOND);
        both_halves(o, SECOND);
    }
}

static void steady(progress *o, int micro_batches) {
    while (o->next[RPI_PASS_FORWARD][SECOND] < micro_batches) {
        if (o->next[RPI_PASS_FORWARD][FIRST] < micro_batches) forward(o, FIRST);
        both_halves(o, FIRST);
        forward(o, SECOND);
        both_halves(o, SECOND);
    }
}

static void finish(progress *o, int stage, int behind) {
    for (int k = 0; k < stage; k++) {
        inputs(o, FIRST);
        inputs(o, SECOND);
    }
    for (int k = 0; k <= behind; k++) both_halves(o, FIRST);
    for (int k = 0; k < stage; k++) put(o, RPI_PASS_WEIGHTS, SECOND);
    for (int k = 0; k < stage; k++) put(o, RPI_PASS_WEIGHTS, FIRST);
}

static void build(const rpi_pipeline_shape *shape, int stage, rpi_pipeline_writer *writer) {
    progress o = {.writer = writer};
    int fewest = 2 * shape->stages - 1, behind = shape->stages - 1 - stage;
    warm_up(&o, stage, behind);
    steady(&o, shape->micro_batches > fewest ? shape->micro_batches : fewest);
    finish(&o, stage, behind);
}

static int least(int a, int b) {
    return a < b ? a : b;
}

/* Of few micro-batches, all forward passes of the first chunk come before the others. */
static int kept(const rpi_pipeline_shape *shape, int stage) {
    int m = shape->micro_batches;
    return least(least(m + 1 + stage, 2 * m), 2 * shape->stages);
}

/* Of few micro-batches the way through all parts, there and back, is the longer one. */
static int64_t unit_time(const rpi_pipeline_shape *shape) {
    int64_t m = shape->micro_batches, p = shape->stages, more = 3 * (p - 1) - 2 * (m - 1);
    return 6 * m + p - 1 + (more > 0 ? more : 0);
}

const rpi_pipeline_kind rpi_pipeline_zb_v = {
    .name = "zb-v",
    .summary =
        "two chunks a stage, there and back (ZB-V): no stage waits midway, 1F1B's memory",
    .chunks = 2,
    .turns = true,
    .splits = true,
    .build = build,
    .kept = kept,
    .unit_time = unit_time,
};
