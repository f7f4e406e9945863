/* Handles ranks that die while a run goes on without them: the ranks that are left meet, and
 * all go on after the same step, each with its own part of the data. The parts of the dead
 * ranks are left out from then on. */
#ifndef RPI_TRAIN_REJOIN_H
#define RPI_TRAIN_REJOIN_H

#include "train/trainer.h"

/* For ranks with roles: removes from the members those left behind since the last time, as the
 * strategy says. false: there are none. *out_loss: valid until the next one. */
bool rpi_trainer_find_lost(rpi_trainer *trainer, rpi_loss *out_loss);

/* "ranks 0, 1 and 3" */
void rpi_append_ranks(char *text, size_t bytes, const int *ranks, int count);

/* What a rank has done when it is told of a death; doubles, as ranks send it to each other. */
typedef struct rpi_standing {
    double step;             /* ranks that are behind make the others' steps alone */
    double evaluated, saved; /* after these steps; -1: never */
    double good;             /* step of the last checkpoint */
    double asked;
} rpi_standing;

/* The standing of all ranks, which have made equally many steps. Collective. */
rp_status rpi_trainer_compare(const rpi_trainer *trainer, rpi_standing *in_out_standing);

/* The communicator of the ranks that are left becomes the trainer's, and all of them are at the
 * same step. In: this rank's standing. Out: the furthest step, what all have done after it, and
 * what any rank was asked for. Further deaths are handled meanwhile. *out_loss: valid until the
 * next one. `reports` stay this rank's alone until rpi_step_reports_rejoin(). Collective over
 * the ranks that are left. */
rp_status rpi_trainer_rejoin(rpi_trainer *trainer, rpi_standing *in_out_standing,
                             rpi_loss *out_loss);

#endif
