/* What a rank did in the last whole step of a run: passes of the model, and exposed waits.
 * `redpoll report` draws it for ranks that hold a model together. */
#ifndef RPI_TRAIN_STEP_PICTURE_H
#define RPI_TRAIN_STEP_PICTURE_H

#include "train/parallel/train_place.h"

#include "redpoll/comm.h"

/* The first ones as rpi_pass_kind; then waits for other stages, for ranks that share layers,
 * and for other replicas. */
typedef enum rpi_picture_kind {
    RPI_PICTURE_FORWARD,
    RPI_PICTURE_BACKWARD,
    RPI_PICTURE_INPUTS,
    RPI_PICTURE_WEIGHTS,
    RPI_PICTURE_STAGES,
    RPI_PICTURE_LAYERS,
    RPI_PICTURE_REPLICAS,
    RPI_PICTURE_KINDS
} rpi_picture_kind;

typedef struct rpi_picture_span {
    int64_t start_ns, end_ns;         /* rpi_now_ns() */
    int32_t kind, chunk, micro_batch; /* micro_batch -1: of none */
    int32_t unused;
} rpi_picture_span;

enum { RPI_PICTURE_SPANS = 4096 }; /* of a step; further ones are left out */

typedef struct rpi_step_picture {
    rpi_picture_span *spans; /* NULL: no picture is wanted */
    int64_t count, step;     /* step 0: there was no step yet */
    int64_t start_ns, end_ns, zero_ns;
    bool is_open;
} rpi_step_picture;

rp_status rpi_step_picture_open(rpi_step_picture *out_picture);
void rpi_step_picture_close(rpi_step_picture *picture); /* zeros are fine */

/* Times count from here; all ranks call it after a barrier. */
void rpi_step_picture_start(rpi_step_picture *picture);
/* Begins a step: spans from now on belong to it, and earlier ones are dropped. */
void rpi_step_picture_begin(rpi_step_picture *picture, int64_t step, int64_t start_ns);
/* Adds a span; outside of steps, and for less than a microsecond, nothing. */
void rpi_step_picture_add(rpi_step_picture *picture, rpi_picture_kind kind, int chunk,
                          int64_t micro_batch, int64_t start_ns, int64_t end_ns);
void rpi_step_picture_end(rpi_step_picture *picture, int64_t end_ns);

struct cJSON;

/* On rank 0: an object {"picture_step", "ranks": [...]} of the ranks of its replica
 * (docs/json.md), which the caller deletes; NULL elsewhere, and if there was no step.
 * Collective over these ranks. */
rp_status rpi_step_picture_gather(const rpi_step_picture *picture, const rpi_train_place *place,
                                  rp_comm *comm, struct cJSON **out_object);

#endif
