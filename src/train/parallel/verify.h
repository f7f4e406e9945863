/* Is a training over ranks that of one rank? What two runs have saved after the same steps,
 * tensor by tensor, and how far it may be apart.
 *
 * A layout does the additions of one rank in the order of one rank, so that most are promised
 * to be bit-equal. Where that is not so there is a reason, which has a row (verify_bounds.c)
 * with what follows from it. */
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

/* One tensor, or number, that differs: the same in bits is equal. */
typedef struct rpi_verify_tensor {
    char name[RPI_VERIFY_NAME];
    int place;                /* in the model's order */
    int64_t count, differing; /* elements, and how many of them differ */
    int64_t element;          /* the one that differs most, in the whole tensor's order */
    double one, other;        /* it, of either run */
    int rank;                 /* of the other run, that has saved it; -1: all have it */
} rpi_verify_tensor;

/* All of one kind after one step. */
typedef struct rpi_verify_difference {
    int64_t compared, differing; /* tensors */
    double largest;              /* difference of two elements */
    double scale;                /* the largest magnitude of the first run's elements; of a
                                    slot's where `relative` comes from, for slots differ in it */
    double relative;             /* largest / scale, the largest such; 0: bit-equal, or signs
                                    of zero differ */
    rpi_verify_tensor first;     /* that differs, in the model's order */
    rpi_verify_tensor worst;     /* that differs most, by `relative` */
} rpi_verify_difference;

/* One number of each; both NaN: it was not measured. */
void rpi_verify_numbers(const char *name, double one, double other,
                        rpi_verify_difference *out_difference);

/* Tensors of what the run in folder `one` saved as whole ones after a step against those of
 * `other`, whole or in pieces; step 0: of each the newest. Fills the last three kinds.
 * RP_NOT_FOUND: one has no checkpoint of that step, or not that tensor; RP_MISMATCH: of another
 * shape; RP_CORRUPT. */
rp_status rpi_verify_checkpoints(const char *one, const char *other, int64_t step,
                                 rpi_verify_difference out_kinds[RPI_VERIFY_KINDS]);

/* ---- verify_bounds.c ---- */

/* What decides how far a layout is from one rank. */
typedef struct rpi_verify_layout {
    const rpi_train_options *options;
    int stages, replicas, tensor_ranks, context_ranks;
    int64_t micro_batches; /* of a replica in a step */
    bool has_ties;         /* a table is at both ends of the stages */
    bool has_shared;       /* a parameter is read at several places, as a tied table */
    bool has_short_batch;  /* among those learnt from */
} rpi_verify_layout;

/* Relative to the largest magnitude of the kind, after one step; more steps are so many times
 * that. 0: bit-equal; infinity: nothing is promised. */
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

/* Of all reasons that apply. */
rpi_verify_bounds rpi_verify_bounds_of(const rpi_verify_layout *layout);
/* has_ties and has_shared of the model of these options, in its stages. RP_INVALID: it cannot
 * be cut into so many, and what would fit. */
rp_status rpi_verify_find_ties(const rpi_train_options *options,
                               rpi_verify_layout *in_out_layout);

#endif
