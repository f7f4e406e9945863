/* Compares a training over ranks with the same training on one rank: what the two runs have
 * saved after the same steps, tensor by tensor, and how far they may differ.
 *
 * A layout makes the additions of one rank in the order of one rank, so that most layouts are
 * promised to be bit-equal. If one is not there is a reason, which has a row in verify_bounds.c
 * with its consequences. */
#ifndef RPI_TRAIN_VERIFY_H
#define RPI_TRAIN_VERIFY_H

#include "train/train.h"

enum { RPI_VERIFY_NAME = 192 };

/* What is compared. */
typedef enum rpi_verify_kind {
    RPI_VERIFY_LOSS,
    RPI_VERIFY_NORM, /* of all gradients together */
    RPI_VERIFY_PARAMETERS,
    RPI_VERIFY_OPTIMIZER,  /* its slots */
    RPI_VERIFY_STATISTICS, /* running ones, of batches */
    RPI_VERIFY_KINDS
} rpi_verify_kind;
const char *rpi_verify_kind_name(rpi_verify_kind kind); /* "parameters" */

/* One tensor, or number, that differs; equal means equal bits. */
typedef struct rpi_verify_tensor {
    char name[RPI_VERIFY_NAME];
    int place;                /* in the model's order */
    int64_t count, differing; /* elements, and how many of them differ */
    int64_t element;          /* the one that differs most, numbered in the whole tensor */
    double one, other;        /* its values in the two runs */
    int rank;                 /* the rank of the other run that has saved it; -1: all have it */
    double scale;             /* the largest magnitude of the first run's elements */
} rpi_verify_tensor;

/* All differences of one kind after one step. */
typedef struct rpi_verify_difference {
    int64_t compared, differing; /* tensors */
    double largest;              /* difference of two elements */
    /* the largest magnitude of the first run's elements, in the slot of `relative`, as slots
     * differ in magnitude */
    double scale;
    /* the largest of largest / scale; 0: bit-equal, or zeros of different signs */
    double relative;
    rpi_verify_tensor first; /* the first that differs in the model's order */
    rpi_verify_tensor worst; /* the one with the largest `relative` */
    /* The one that is further off, of those off by more than sums in another order explain:
     * RPI_VERIFY_OF_TENSOR of their own largest, and RPI_VERIFY_OF_ALL of the largest of their
     * slot, as a gradient may be nothing but the rounding of others. */
    rpi_verify_tensor wrong;
    double wrong_relative; /* to its own largest; 0: there is none */
} rpi_verify_difference;

#define RPI_VERIFY_OF_TENSOR 1e-5
#define RPI_VERIFY_OF_ALL    1e-7

/* Compares one number of each run; both NaN: it was not measured. */
void rpi_verify_numbers(const char *name, double one, double other,
                        rpi_verify_difference *out_difference);

/* Compares the whole tensors that the run in folder `one` saved after a step with those of
 * `other`, whole or in pieces; step 0: the newest checkpoint of each. Fills the last three
 * kinds. RP_NOT_FOUND: a run has no checkpoint of that step, or lacks a tensor; RP_MISMATCH: a
 * tensor has another shape; RP_CORRUPT. */
rp_status rpi_verify_checkpoints(const char *one, const char *other, int64_t step,
                                 rpi_verify_difference out_kinds[RPI_VERIFY_KINDS]);

/* ---- verify_bounds.c ---- */

/* The facts of a layout that decide how far it is from one rank. */
typedef struct rpi_verify_layout {
    const rpi_train_options *options;
    int stages, replicas, tensor_ranks, context_ranks;
    int64_t micro_batches; /* of a replica in a step */
    bool has_ties;         /* the first and the last stage share a table */
    bool has_shared;       /* a parameter is used at several places, as a tied table is */
    bool has_short_batch;  /* some batches that are learnt from are short */
} rpi_verify_layout;

/* Relative to the largest magnitude of the kind, after one step; n steps may differ n times as
 * much. 0: bit-equal; infinity: no promise. */
typedef struct rpi_verify_bounds {
    double of[RPI_VERIFY_KINDS];
} rpi_verify_bounds;

/* A reason for a difference; NULL past the end. */
typedef struct rpi_verify_reason {
    const char *name, *why;
    bool (*applies)(const rpi_verify_layout *layout);
    rpi_verify_bounds bounds;
} rpi_verify_reason;
const rpi_verify_reason *rpi_verify_reason_at(int index);

/* The bounds by all reasons that apply. */
rpi_verify_bounds rpi_verify_bounds_of(const rpi_verify_layout *layout);
/* Finds has_ties and has_shared for the model of these options, cut into its stages.
 * RP_INVALID: it cannot be cut into so many; the message says what would fit. */
rp_status rpi_verify_find_ties(const rpi_train_options *options,
                               rpi_verify_layout *in_out_layout);

#endif
