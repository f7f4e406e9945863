/* Pipelines as data: which passes each stage runs, in which order.
 *
 * One word each:
 *   stage        what one rank of a pipeline holds of the model
 *   chunk        a stretch of the model that lies in one piece on a stage; a stage has one or
 * more part         a chunk's place in the model: 0 ... stages x chunks - 1 micro-batch  what
 * goes through all parts, once each way pass         one micro-batch through one chunk, one way
 *   order        the passes of a stage, one behind the other
 *
 * A kind is a pure function (stages, stage, micro-batches, chunks) -> order. What is sent
 * follows from it: a part's forward pass needs that of the part before; its backward pass needs
 * that of the part behind, and on the last part its own forward pass; a pass for weights needs
 * the one for inputs. Inputs are looked up by (direction, part, micro-batch), never taken by
 * their arrival.
 *
 * Of every kind: for each part, backward passes run in the order of micro-batches, and so do
 * those for weights. Gradients therefore add up in one order, whatever the kind. */
#ifndef RPI_PLAN_PIPELINE_KIND_H
#define RPI_PLAN_PIPELINE_KIND_H

#include "redpoll/status.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    RPI_PIPELINE_STAGES = 1024, /* the most of each, and of passes of all stages together */
    RPI_PIPELINE_MICRO_BATCHES = 65536,
    RPI_PIPELINE_CHUNKS = 64,
    RPI_PIPELINE_PASSES = 1 << 22
};

typedef enum rpi_pass_kind {
    RPI_PASS_FORWARD,
    RPI_PASS_BACKWARD, /* for inputs and weights, in one */
    RPI_PASS_INPUTS,   /* the half of it that others wait for */
    RPI_PASS_WEIGHTS,  /* and the other half */
    RPI_PASS_KINDS
} rpi_pass_kind;

typedef struct rpi_pipeline_pass {
    uint8_t kind; /* an rpi_pass_kind */
    uint8_t chunk;
    int32_t micro_batch;
} rpi_pipeline_pass;

typedef struct rpi_pipeline_shape {
    int stages, micro_batches;
    int chunks; /* of a stage */
} rpi_pipeline_shape;

/* Where a kind writes an order. */
typedef struct rpi_pipeline_writer {
    rpi_pipeline_pass *passes;
    int count, capacity; /* count: also of passes that had no room */
    int micro_batches;
} rpi_pipeline_writer;

/* The contract of a kind; pipelines.c is the catalogue. All functions are pure. */
typedef struct rpi_pipeline_kind {
    const char *name;    /* "1f1b" */
    const char *summary; /* one line */
    int chunks;          /* that a stage has; 0: the caller says, 2 or more */
    bool turns;          /* every second chunk runs backwards over the stages: V, not a loop */
    bool splits;         /* backward passes come in halves */
    void (*build)(const rpi_pipeline_shape *shape, int stage, rpi_pipeline_writer *writer);
    /* Promises, which pipeline_check.h proves. The most micro-batches, one for each chunk, of
     * which a stage keeps something: from the forward pass to the end of the backward pass, of
     * both halves where it comes so. */
    int (*kept)(const rpi_pipeline_shape *shape, int stage);
    /* Messages of one direction between two stages that have to have room until they are used:
     * of activations, and of gradients. NULL: one. */
    int (*room)(const rpi_pipeline_shape *shape);
    /* When all is done, where forward passes, passes for inputs and passes for weights of a
     * chunk take one unit each, and what is sent takes none. */
    int64_t (*unit_time)(const rpi_pipeline_shape *shape);
} rpi_pipeline_kind;

/* The catalogue; NULL past the end. */
const rpi_pipeline_kind *rpi_pipeline_kind_at(int index);
/* RP_INVALID names those there are, and the nearest. */
rp_status rpi_pipeline_kind_find(const char *name, const rpi_pipeline_kind **out_kind);

/* The shape that a kind has with so many stages and micro-batches. chunks: of a stage; 0: the
 * kind's, or 2. RP_INVALID says what can be. */
rp_status rpi_pipeline_shape_make(const rpi_pipeline_kind *kind, int64_t stages,
                                  int64_t micro_batches, int64_t chunks,
                                  rpi_pipeline_shape *out_shape);

/* The part that is a stage's chunk, and the stage that has a part, which is its chunk number
 * part / stages. */
static inline int rpi_pipeline_part(const rpi_pipeline_kind *kind, int stages, int stage,
                                    int chunk) {
    return chunk * stages + (kind->turns && chunk % 2 ? stages - 1 - stage : stage);
}
static inline int rpi_pipeline_stage(const rpi_pipeline_kind *kind, int stages, int part) {
    int at = part % stages;
    return kind->turns && part / stages % 2 ? stages - 1 - at : at;
}

static inline int rpi_pipeline_room(const rpi_pipeline_kind *kind,
                                    const rpi_pipeline_shape *shape) {
    return kind->room ? kind->room(shape) : 1;
}

/* Has a stage one chunk, and one backward pass of each micro-batch? */
static inline bool rpi_pipeline_is_whole(const rpi_pipeline_kind *kind) {
    return kind->chunks == 1 && !kind->splits;
}

/* Passes of an order. */
static inline int rpi_pipeline_count(const rpi_pipeline_kind *kind,
                                     const rpi_pipeline_shape *shape) {
    return shape->micro_batches * shape->chunks * (kind->splits ? 3 : 2);
}

/* "F3", "D3" (a whole backward pass), "B3" (for inputs), "W3"; where a stage has several chunks
 * "F3a", "F3b" ... "F3/26". Returns text. */
enum { RPI_PASS_TEXT = 24 };
const char *rpi_pass_text(const rpi_pipeline_pass *pass, int chunks, char text[RPI_PASS_TEXT]);
const char *rpi_pass_name(rpi_pass_kind kind); /* "forward", "backward", "inputs", "weights" */

/* ---- for kinds ---- */

/* One pass more. A micro-batch that does not exist is left out, so that an order made for many
 * of them serves few. */
void rpi_pipeline_put(rpi_pipeline_writer *writer, rpi_pass_kind kind, int chunk,
                      int micro_batch);
/* `times` forward passes for each stage behind this one, of as many as there are; and so many
 * and one, which a stage keeps that runs them before its first backward pass. */
int rpi_pipeline_ahead(const rpi_pipeline_shape *shape, int stage, int times);
int rpi_pipeline_ahead_kept(const rpi_pipeline_shape *shape, int stage, int times);
/* The unit time of one chunk a stage with whole backward passes. */
int64_t rpi_pipeline_whole_time(const rpi_pipeline_shape *shape);
/* Of one chunk: so many forward passes, then one forward and one backward by turns. */
void rpi_pipeline_put_1f1b(rpi_pipeline_writer *writer, int warm_up);
/* The same with backward passes in halves: those for weights begin behind `late` of those for
 * inputs, one behind each. */
void rpi_pipeline_put_halves(rpi_pipeline_writer *writer, int warm_up, int late);

#endif
