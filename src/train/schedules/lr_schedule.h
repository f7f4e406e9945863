/* Learning rates over a run; the contract of a kind, which lr_schedules.c lists.
 *
 *     peak            ________
 *                   /         \          warm-up: step s < warmup_steps uses
 *                 /             `-.                peak * (s + 1) / warmup_steps
 *               /                  `-__  hold:    peak, up to the step at which decay starts
 *     minimum |         |        |     | decay:   the kind's, then its last rate
 *             0      warm-up   start  end
 *
 * Kinds that decay do so from the end of the warm-up to the end of the run, unless decay_start
 * or decay_steps say otherwise. The others have no hold and count from the end of the warm-up.
 */
#ifndef RPI_TRAIN_LR_SCHEDULE_H
#define RPI_TRAIN_LR_SCHEDULE_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct rpi_lr_options {
    double peak;
    double minimum;       /* where decay ends */
    double gamma;         /* factor of each drop of step */
    int64_t warmup_steps; /* 0: none */
    int64_t drop_every;   /* steps between two drops of step */
    int64_t decay_start;  /* the step, from 0, at which decay starts; 0: as above */
    int64_t decay_steps;  /* from there to the minimum; 0: to the end of the run */
    int64_t total_steps;  /* of the run, warm-up included */
} rpi_lr_options;

typedef struct rpi_lr_schedule {
    const char *name, *summary;
    rp_status (*check)(const rpi_lr_options *options); /* NULL: takes all */
    /* Of step `step` of `steps`, both counted from the end of the warm-up, or of the hold where
     * the kind decays: then 0 <= step <= steps; steps >= 1. */
    double (*rate)(const rpi_lr_options *options, int64_t step, int64_t steps);
    /* How much of the run after its warm-up is decay where nothing is said: 1 is all of it; 0:
     * this kind does not decay to the minimum. */
    double decays;
} rpi_lr_schedule;

/* The catalogue; NULL past the end. */
const rpi_lr_schedule *rpi_lr_schedule_at(int index);
/* RP_INVALID names those there are, and the nearest. */
rp_status rpi_lr_schedule_find(const char *name, const rpi_lr_schedule **out_schedule);
/* RP_INVALID: options that this kind cannot use. */
rp_status rpi_lr_check(const rpi_lr_schedule *schedule, const rpi_lr_options *options);
double rpi_lr_at(const rpi_lr_schedule *schedule, const rpi_lr_options *options, int64_t step);

#endif
