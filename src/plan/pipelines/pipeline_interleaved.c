/* Interleaved 1F1B: a stage has several chunks, `stages` parts apart, so that its first
 * micro-batch is with the last stage so many times sooner; every chunk costs a message more.
 *
 * Micro-batches go in groups, each through chunk after chunk. A group has at least as many as
 * there are stages, or it would come back before its stage is free of it; the last one takes
 * what is left, which must be as many, too, so that groups are widened until it is. */
#include "plan/pipelines/pipeline_kind.h"

static int group(const rpi_pipeline_shape *shape) {
    int m = shape->micro_batches, wide = shape->stages;
    while (wide < m && m % wide > 0 && m % wide < shape->stages) wide++;
    return wide < m ? wide : m;
}

typedef struct entry {
    int chunk, micro_batch;
} entry;

/* Entry j of the order in which forward passes run. */
static entry entry_at(const rpi_pipeline_shape *shape, int j) {
    int wide = group(shape), first = j / (wide * shape->chunks) * wide;
    int left = shape->micro_batches - first, here = left < wide ? left : wide;
    int at = j - first * shape->chunks;
    return (entry){at / here, first + at % here};
}

static void put(const rpi_pipeline_shape *shape, rpi_pass_kind kind, int j,
                rpi_pipeline_writer *writer) {
    entry e = entry_at(shape, j);
    int chunk = kind == RPI_PASS_FORWARD ? e.chunk : shape->chunks - 1 - e.chunk;
    rpi_pipeline_put(writer, kind, chunk, e.micro_batch);
}

static int warm_up(const rpi_pipeline_shape *shape, int stage) {
    int all = shape->micro_batches * shape->chunks;
    int ahead = 2 * (shape->stages - 1 - stage) + (shape->chunks - 1) * group(shape);
    return ahead < all ? ahead : all;
}

static void build(const rpi_pipeline_shape *shape, int stage, rpi_pipeline_writer *writer) {
    int all = shape->micro_batches * shape->chunks, ahead = warm_up(shape, stage);
    for (int j = 0; j < ahead; j++) put(shape, RPI_PASS_FORWARD, j, writer);
    for (int j = 0; j < all; j++) {
        if (ahead + j < all) put(shape, RPI_PASS_FORWARD, ahead + j, writer);
        put(shape, RPI_PASS_BACKWARD, j, writer);
    }
}

static int kept(const rpi_pipeline_shape *shape, int stage) {
    int all = shape->micro_batches * shape->chunks, most = warm_up(shape, stage) + 1;
    return most < all ? most : all;
}

/* In a group that is wider than there are stages, the first ones are back at the first stage
 * while it still sends the last ones out. */
static int room(const rpi_pipeline_shape *shape) {
    int more = group(shape) - shape->stages;
    return more > 0 ? more + 1 : 1;
}

/* Of few micro-batches the way through all parts is the longer one. */
static int64_t unit_time(const rpi_pipeline_shape *shape) {
    int64_t m = shape->micro_batches, p = shape->stages, v = shape->chunks;
    return m >= p ? 3 * (v * m + p - 1) : 3 * (v * p + m - 1);
}

const rpi_pipeline_kind rpi_pipeline_interleaved = {
    .name = "interleaved",
    .summary = "1F1B over several chunks a stage: the bubble divided by them, more messages",
    .build = build,
    .kept = kept,
    .room = room,
    .unit_time = unit_time,
};
