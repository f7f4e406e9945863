/* The contract of a source: where the batches of a task come from, those to learn from in the
 * sampler's order, and those that are held out.
 *
 * What a batch holds follows from its step, so that a source has no state to save. A kind of
 * data names its source (dataset.h). One thread at a time. */
#ifndef RPI_TRAIN_SOURCE_H
#define RPI_TRAIN_SOURCE_H

#include "train/data/label_split.h"
#include "train/data/picture_options.h"
#include "train/data/scores.h"
#include "train/tasks/task.h"

typedef struct rpi_source_options {
    const char *data;   /* as the user wrote it: "fashion-mnist" */
    const char *folder; /* NULL: where the data look by themselves */
    uint64_t seed;
    int64_t train_count, test_count; /* of made-up data; 0: its own choice */
    int64_t sequence;                /* of tokens; 0: 256 */
    rpi_picture_options pictures;    /* of folders of pictures */
    rpi_label_split split;           /* of data with labels */
    int64_t global_batch;            /* samples of a step, of all ranks */
    int64_t most; /* the most samples of this rank that are asked for at once */
    int rank, world;
    /* The model remembers: row r of a step goes on where row r of the step before ended, and
     * all begin anew with each epoch. Kinds that cannot (continues) are refused. */
    bool continues;
    /* The catalogue, for data made of other data; set by rpi_source_open. */
    const struct rpi_dataset_kind *const *kinds;
} rpi_source_options;

typedef struct rpi_source_batch {
    /* In the task's order, `count` samples each; until the next call. */
    const void *inputs[RPI_TASK_INPUTS];
    int64_t count,
        global_count; /* samples of this rank, of all ranks; this one may have none */
    int64_t labels, global_labels; /* that count in the loss, likewise */
} rpi_source_batch;

typedef struct rpi_source {
    const struct rpi_source_kind *kind;
    void *self;
    rpi_data_shape shape;
    int64_t train_count, test_count; /* samples */
    int64_t sample_units; /* of what the task counts: 1 image, tokens of a sequence */
    int64_t global_batch;
    const rpi_split_parts *parts; /* the ranks' own; NULL: all ranks see all */
} rpi_source;

typedef struct rpi_source_kind {
    const char *task; /* whose inputs it yields */
    bool continues;   /* it can deal segments that go on: rpi_source_options.continues */
    /* Fill in *source but for kind and global_batch. On failure nothing is left. */
    rp_status (*open)(const rpi_source_options *options, rpi_source *source);
    void (*close)(void *self);
    /* The model's vocabulary, for data that do not know theirs: labels beyond are refused with
     * their place. Before the first batch. NULL: there is nothing to limit. */
    void (*limit)(rpi_source *source, int64_t vocabulary);
    /* Of several sources the one that deals a step, and the step that is its first; the
     * caller's for reading. NULL: the source is one. */
    rpi_source *(*part)(const rpi_source *source, int64_t step, int64_t *out_first);
    /* This rank's part of a step of training. */
    rp_status (*deal)(rpi_source *source, int64_t step, rpi_source_batch *out_batch);
    /* Held-out samples in [first, first + count), as they lie. Global numbers are 0. */
    rp_status (*hold_out)(rpi_source *source, int64_t first, int64_t count,
                          rpi_source_batch *out_batch);
    /* Of tasks that judge logits (rpi_task.judges_logits), else 0 and NULL. What a model says
     * of a held-out sample, in verdict_numbers numbers, from its logits... */
    int verdict_numbers;
    void (*judge)(const rpi_source *source, int64_t sample, const float *logits,
                  double *out_verdict);
    /* ...and what those of the first `count` come to. */
    rp_status (*score)(const rpi_source *source, int64_t count, const double *verdicts,
                       rpi_scores *out_scores);
} rpi_source_kind;

/* RP_INVALID: unknown data. Messages begin with the data's name. */
rp_status rpi_source_open(const rpi_source_options *options, rpi_source *out_source);
/* As above, of these kinds of data, of which the last is NULL. */
rp_status rpi_source_open_of(const struct rpi_dataset_kind *const *kinds,
                             const rpi_source_options *options, rpi_source *out_source);
void rpi_source_close(rpi_source *source); /* zeros are fine */
/* The task that data of this name are for, without opening them. */
rp_status rpi_source_task(const char *data, const rpi_task **out_task);

/* See rpi_source_kind. */
void rpi_source_limit(rpi_source *source, int64_t vocabulary);
rp_status rpi_source_deal(rpi_source *source, int64_t step, rpi_source_batch *out_batch);
rp_status rpi_source_hold_out(rpi_source *source, int64_t first, int64_t count,
                              rpi_source_batch *out_batch);

int64_t rpi_source_steps_per_epoch(const rpi_source *source);
/* Of several sources that which deals the step: does an epoch of it begin there, and which is
 * the last step of that epoch, which other steps may never come to? */
bool rpi_source_begins_epoch(const rpi_source *source, int64_t step);
int64_t rpi_source_last_of_epoch(const rpi_source *source, int64_t step);
/* Samples of all ranks at a step: the last of an epoch takes what is left. */
int64_t rpi_source_count(const rpi_source *source, int64_t step);

#endif
