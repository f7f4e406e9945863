/* Learning rates over a run; the contract of a kind, which lr_schedules.c lists.
 *
 * Any kind may be preceded by a linear warm-up: step s < warmup_steps uses
 * peak * (s + 1) / warmup_steps, and the kind counts from the end of the warm-up. */
#ifndef RPI_TRAIN_LR_SCHEDULE_H
#define RPI_TRAIN_LR_SCHEDULE_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct rpi_lr_options {
    double peak;
    double minimum;       /* where cosine ends */
    double gamma;         /* factor of each drop of step */
    int64_t warmup_steps; /* 0: none */
    int64_t drop_every;   /* steps between two drops of step */
    int64_t total_steps;  /* of the run, warm-up included */
} rpi_lr_options;

typedef struct rpi_lr_schedule {
    const char *name, *summary;
    rp_status (*check)(const rpi_lr_options *options); /* NULL: takes all */
    /* Of step `step` of `steps`, both counted from the end of the warm-up; steps >= 1. */
    double (*rate)(const rpi_lr_options *options, int64_t step, int64_t steps);
} rpi_lr_schedule;

/* The catalogue; NULL past the end. */
const rpi_lr_schedule *rpi_lr_schedule_at(int index);
/* RP_INVALID names those there are, and the nearest. */
rp_status rpi_lr_schedule_find(const char *name, const rpi_lr_schedule **out_schedule);
/* RP_INVALID: options that this kind cannot use. */
rp_status rpi_lr_check(const rpi_lr_schedule *schedule, const rpi_lr_options *options);
double rpi_lr_at(const rpi_lr_schedule *schedule, const rpi_lr_options *options, int64_t step);

#endif
